"""The measurement of exactness: it finds none where there is none, and finds what is planted."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from flide_engine import Ask, Engine, InvalidRequest
from flide_engine.backend import DTYPES
from flide_engine.kernels.fork_attention import fork_attention
from flide_engine.round import Queries, Round
from flide_engine.verify import BOUNDS, Report, verify
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

QUESTIONS: dict[str, Any] = {
    "refund": {"type": "noul", "instructions": "Money back?"},
    "team": {"type": "choice", "criteria": {"billing": None, "환불": "refunds", "sales": None}},
    "anger": {"type": "score", "criteria": ["calm", "angry"]},
}

ASKS = [
    Ask("I was charged twice, and nobody answers. " * 8, QUESTIONS),
    Ask([{"role": "user", "content": "Fix it."}, {"call": "shell"}], {"a": QUESTIONS["team"]}),
    Ask("Hi.", {"b": QUESTIONS["refund"]}),
]

FAMILIES = [("llama", "rope_scaling"), ("qwen3_5", "tied"), ("qwen3_5", "linear_last")]


@pytest.fixture(scope="module", params=FAMILIES, ids=["-".join(case) for case in FAMILIES])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of every family."""
    return chat_model(tmp_path_factory.mktemp("model"), *request.param)


@pytest.fixture
def measure(directory: Path) -> Callable[..., Report]:
    """Verifies the model in a dtype, after whatever is done to its engine."""

    def run(
        dtype: str = "float32", break_it: Callable[[Engine], None] | None = None, **options: Any
    ) -> Report:
        engine = Engine.from_pretrained(directory, dtype=dtype, pool_bytes=64 * 1024**2)
        if break_it:
            break_it(engine)
        return verify(engine, ASKS, directory=directory, **options)

    return run


def over(report: Report) -> set[tuple[str, str]]:
    """The forms that break their bound."""
    return {(form.name, form.against) for form in report.forms if not form.ok}


def test_every_form_is_measured_and_keeps_its_bound(measure: Callable[..., Report]) -> None:
    """Each form answers every question, resumed ones at grid points from first to last."""
    report = measure()

    assert {(form.name, form.against): form.answers for form in report.forms} == {
        ("forked", "alone"): 5,
        ("batched", "alone"): 5,
        ("shared", "alone"): 10,
        ("resumed", "alone"): 4 * 3 + 1,
        ("forked", "transformers"): 5,
    }
    assert report.ok, report
    assert (report.requests, report.questions) == (3, 5)
    assert (report.dtype, report.device) == ("float32", "cpu")
    assert report.places == (64, 128, 256, 320)
    assert report.faults == ()
    assert all(form.changed == 0 for form in report.forms)


def test_float64_is_exact_and_transformers_only_informs(measure: Callable[..., Report]) -> None:
    """Our own forms agree to 1e-9; transformers, which casts to float32, has no bound there."""
    report = measure("float64")
    *ours, theirs = report.forms

    assert report.ok
    assert {form.bound for form in ours} == {1e-9}
    assert theirs.bound is None
    assert 0 < theirs.largest_difference < 1e-3


def test_a_bound_of_the_callers_own_replaces_the_usual_one(measure: Callable[..., Report]) -> None:
    """With a bound of 0 equal bits are asked for, which float32 does not give."""
    report = measure(bound=0)

    assert {form.bound for form in report.forms} == {0}
    assert not report.ok
    assert ("forked", "transformers") in over(report)


def test_a_row_that_leaks_between_siblings_is_found(
    measure: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention that lets a branch see one row of its sibling fails every form but alone."""

    def leaky(*args: Any) -> torch.Tensor:
        out = fork_attention(*args)
        rnd = next(arg for arg in args if isinstance(arg, Round))
        queries = next(arg for arg in args if isinstance(arg, Queries))
        branches = [span for span in queries.spans if span.own_start >= rnd.num_trunk_rows]
        for before, span in pairwise(branches):
            if before.slot == span.slot:
                last = [one.q_start + one.q_len - 1 for one in (before, span)]
                out[last[1]] += 0.2 * out[last[0]]
        return out

    monkeypatch.setattr("flide_engine.layers.attention.fork_attention", leaky)
    report = measure()

    assert not report.ok
    assert over(report) == {(form.name, form.against) for form in report.forms}


def test_a_checkpoint_that_is_not_what_was_left_is_found(measure: Callable[..., Report]) -> None:
    """Keys and states that change while they lie in the pool fail what resumes, and only that."""

    def fade(engine: Engine) -> None:
        run = engine.run

        def faded(requests: Any) -> Any:
            if engine.pool.use().blocks:
                for tensor in (*engine.storage.keys, *engine.storage.recurrent):
                    tensor.mul_(1.05)
            return run(requests)

        engine.run = faded  # type: ignore[method-assign]

    report = measure(break_it=fade)

    assert over(report) == {("resumed", "alone")}
    assert report.faults == ()


def test_a_pass_that_does_not_resume_is_a_fault(
    measure: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right answers of a pass that was not what it was meant to be do not count as verified."""
    monkeypatch.setattr("flide_engine.pool.choose_marks", lambda **_: [])
    report = measure()

    assert not report.ok
    assert over(report) == set()
    assert "request 1: of 64 tokens in a checkpoint 0 were reused." in report.faults


def test_progress_reaches_the_end_of_every_form(measure: Callable[..., Report]) -> None:
    """Progress counts answers, from the first to the last of each form."""
    seen: dict[str, list[tuple[int, int]]] = {}
    measure(progress=lambda form, done, total: seen.setdefault(form, []).append((done, total)))

    assert set(seen) == {"alone", "forked", "batched", "shared", "resumed", "transformers"}
    for steps in seen.values():
        total = len(steps)
        assert steps == [(done, total) for done in range(1, total + 1)]


def test_nothing_to_ask_is_refused(directory: Path) -> None:
    """A verification of nothing would always succeed."""
    engine = Engine.from_pretrained(directory, pool_bytes=1024**2)

    with pytest.raises(InvalidRequest, match="at least one"):
        verify(engine, [], directory=directory)


def test_every_dtype_has_a_bound() -> None:
    """The engine's dtypes are those that verification knows."""
    assert set(BOUNDS) == set(DTYPES.values())
