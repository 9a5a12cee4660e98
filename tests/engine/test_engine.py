"""The engine's door: answers now or promised, one way to them, and an end that is orderly."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from flide_engine import Ask, DeadlineExceeded, Engine, EngineFault, InvalidRequest
from flide_engine.core import GRID
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flide_engine import Result

NAMES = ("refund", "team")
QUESTIONS: dict[str, Any] = {
    name: {"type": "noul", "instructions": f"Is it about the {name}?"} for name in NAMES
}
STATE = "I was charged twice, and nobody answers. " * 6
FAMILIES = [("llama", "tied"), ("qwen3_5", "tied")]
PATIENT = 20.0


@pytest.fixture(scope="module", params=FAMILIES, ids=["llama", "hybrid"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of every family."""
    return chat_model(tmp_path_factory.mktemp("model"), *request.param)


@pytest.fixture
def engine(directory: Path) -> Iterator[Engine]:
    """In float64, with nothing to reuse."""
    with Engine.from_pretrained(directory, dtype="float64", pool_bytes=1 << 24) as engine:
        yield engine


@contextmanager
def busy(engine: Engine) -> Iterator[None]:
    """While the engine is held up, so that whatever is asked waits."""
    entered, ends = threading.Event(), threading.Event()

    def hold_up(_: object) -> None:
        entered.set()
        ends.wait(PATIENT)

    engine.submit(engine.plan("Hi.", QUESTIONS)).add_done_callback(hold_up)
    assert entered.wait(PATIENT)
    yield
    ends.set()


def numbers(result: Result) -> list[float]:
    """The probabilities of a result."""
    return [result.answers[name].noul for name in NAMES]  # type: ignore[union-attr]


def test_a_promise_is_what_an_answer_is(engine: Engine) -> None:
    """The same numbers, tokens and reuse."""
    now = engine.decide(STATE, QUESTIONS)
    engine.pool.clear()
    promised = engine.ask(STATE, QUESTIONS).result(PATIENT)
    assert numbers(promised) == pytest.approx(numbers(now), abs=1e-10)
    assert (promised.usage, promised.reuse) == (now.usage, now.reuse)
    trunk = engine.plan(STATE, QUESTIONS).trunk
    assert promised.state_tokens == len(trunk) == len(engine.plan_trunk(STATE).trunk)
    assert promised.timing.plan_ms + promised.timing.run_ms == pytest.approx(
        promised.timing.total_ms
    )


def test_a_text_that_grows_is_asked_about_as_one_that_is_whole(engine: Engine) -> None:
    """With what is only true now behind it; what was read of it before is reused."""
    text = engine.begin("a").grow(STATE)
    engine.submit(engine.plan_trunk(text), eager=True).result(PATIENT)
    grown = engine.ask(text.grow("Again. "), QUESTIONS, local="Today.").result(PATIENT)
    assert grown.reuse.reused_tokens >= 3 * GRID
    engine.pool.clear()
    whole = engine.decide(STATE + "Again. Today.", QUESTIONS)
    assert numbers(grown) == pytest.approx(numbers(whole), abs=1e-10)
    assert grown.usage == whole.usage


def test_threads_share_the_engine(engine: Engine) -> None:
    """Each gets the answers to its own states."""
    states = [STATE + f"Case {n}." for n in range(12)]
    alone = [numbers(engine.decide(state, QUESTIONS)) for state in states]
    engine.pool.clear()
    with ThreadPoolExecutor(4) as threads:
        together = threads.map(lambda state: engine.decide(state, QUESTIONS), states)
    for result, wanted in zip(together, alone, strict=True):
        assert numbers(result) == pytest.approx(wanted, abs=1e-10)


def test_a_promise_can_be_cancelled_and_may_be_too_late(engine: Engine) -> None:
    """Neither is computed."""
    with busy(engine):
        cancelled = engine.ask(STATE, QUESTIONS)
        late = engine.ask(STATE, QUESTIONS, deadline=time.monotonic() - 1)
        assert engine.health.waiting == 2
        assert cancelled.cancel()
    with pytest.raises(CancelledError):
        cancelled.result(PATIENT)
    with pytest.raises(DeadlineExceeded):
        late.result(PATIENT)
    assert engine.decide(STATE, QUESTIONS).reuse.source == "none"


def test_what_breaks_a_rule_is_refused_at_once(engine: Engine) -> None:
    """Before anything waits."""
    with pytest.raises(InvalidRequest, match="at least one question"):
        engine.ask(STATE, {})
    assert engine.health.waiting == 0


def test_equal_states_asked_together_are_computed_once(engine: Engine) -> None:
    """Requests that come together are in one round."""
    results = engine.decide_many([Ask(STATE, {name: QUESTIONS[name]}) for name in NAMES])
    assert [result.reuse.source for result in results] == ["none", "round"]


def test_a_closed_engine_answers_nothing_any_more(directory: Path) -> None:
    """What waited was answered first; closing it again does nothing."""
    with Engine.from_pretrained(directory, pool_bytes=1 << 24) as engine:
        with busy(engine):
            waiting = engine.ask(STATE, QUESTIONS)
        assert engine.health.alive
    assert len(waiting.result(0).answers) == 2
    assert not engine.health.alive
    engine.close()
    with pytest.raises(EngineFault, match="closed"):
        engine.decide(STATE, QUESTIONS)


def test_an_engine_that_nobody_holds_ends_its_thread(directory: Path) -> None:
    """Nothing else is needed."""
    before = set(threading.enumerate())
    engine = Engine.from_pretrained(directory, pool_bytes=1 << 24)
    engine.decide(STATE, QUESTIONS)
    (thread,) = set(threading.enumerate()) - before
    del engine
    gc.collect()
    thread.join(PATIENT)
    assert not thread.is_alive()
