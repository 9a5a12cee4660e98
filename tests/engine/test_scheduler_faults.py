"""What goes wrong with one request is its own; a fault of the engine is told to all."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from flide_engine.core import Request
from flide_engine.errors import EngineFault, NonFiniteError, RequestTooLarge
from tests.support.pools import assert_empty, make
from tests.support.serving import PATIENT, Stage, ask, history, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from flide_engine.core import Outcome
    from flide_engine.pack import Trunk

BAD = 13
"""A branch whose first token this is breaks its round."""


def raises_if(bad: Callable[[Sequence[Trunk]], bool], error: Exception) -> Any:
    """Breaks rounds for which something holds."""

    def meets(trunks: Sequence[Trunk]) -> None:
        if bad(trunks):
            raise error

    return meets


def has_bad(trunks: Sequence[Trunk]) -> bool:
    """Whether a question that breaks its round is in it."""
    return any(branch.token_ids[0] == BAD for trunk in trunks for branch in trunk.branches)


def errors_of(futures: Sequence[Future[Outcome]]) -> list[type[BaseException] | None]:
    """What became of promises."""
    return [None if e is None else type(e) for e in (f.exception(PATIENT) for f in futures)]


@pytest.mark.parametrize("bad", [[4], [0, 1, 7], range(9)])
def test_what_breaks_a_round_is_found_and_fails_alone(stage: Stage, bad: Sequence[int]) -> None:
    """Its neighbours are answered, also those that share its trunk."""
    stage.meets = raises_if(has_bad, ValueError("not so"))
    with stage.held():
        marks = [BAD if n in bad else 0 for n in range(9)]
        futures = [stage.submit(ask(history(90, n // 2), mark=mark))
                   for n, mark in enumerate(marks)]  # fmt: skip
    wanted = [ValueError if mark else None for mark in marks]
    assert errors_of(futures) == wanted
    assert stage.scheduler.health.alive


def test_what_fails_beside_a_round_that_fills_the_pool_fails_alone(hybrid: bool) -> None:
    """There is room to find out whether the engine is sound."""
    stage = Stage(make(hybrid, pages=6), max_rows=300, depth=2)
    stage.meets = raises_if(has_bad, ValueError("not so"))
    with stage.held():
        bad = stage.submit(ask(history(60, 1), mark=BAD))
        others = [stage.submit(ask(history(290, n))) for n in range(2, 6)]
    assert errors_of([bad, *others]) == [ValueError, *[None] * 4]
    stage.scheduler.close(drain=True)


def test_a_long_trunk_may_fail_on_its_way(stage: Stage) -> None:
    """In a piece that it shares a round with others."""
    long, error = history(4000, 5), ValueError("not so")
    stage.meets = raises_if(lambda trunks: any(t.start > 1500 for t in trunks), error)
    with stage.held():
        futures = [stage.submit(ask(trunk)) for trunk in (long, history(100, 1))]
    assert errors_of(futures) == [ValueError, None]


def test_what_fails_once_is_answered(stage: Stage) -> None:
    """Another try may be all it takes."""
    failed: list[object] = []

    def meets(trunks: Sequence[Trunk]) -> None:
        if not failed:
            failed.append(trunks)
            raise RuntimeError("once")

    stage.meets = meets
    assert errors_of([stage.submit(ask(history(90, 1)))]) == [None]


def test_what_is_not_finite_fails_alone(stage: Stage) -> None:
    """Neither a neighbour nor a question about the same state does."""
    stage.spoils = lambda branch: bool(branch.token_ids[0] == BAD)
    with stage.held():
        trunks = [history(90, 1), history(90, 2)]
        futures = [stage.submit(ask(trunk, mark=mark)) for trunk in trunks for mark in (0, BAD)]
        nothing_asked = stage.submit(Request(trunks[0], ()))
    assert errors_of(futures) == [None, NonFiniteError, None, NonFiniteError]
    assert nothing_asked.exception(PATIENT) is None


def test_a_round_that_is_too_much_for_the_device_is_halved(stage: Stage) -> None:
    """What is too much by itself is refused, with the way out."""
    memory = torch.OutOfMemoryError("CUDA out of memory")
    stage.meets = raises_if(lambda trunks: sum(map(rows_of, trunks)) > 300, memory)
    with stage.held():
        futures = [stage.submit(ask(history(length, length))) for length in (90, 91, 92, 93, 320)]
    assert errors_of(futures) == [None] * 4 + [RequestTooLarge]
    with pytest.raises(RequestTooLarge, match=r"325 rows .* a lower max_round_tokens"):
        futures[-1].result()
    assert errors_of([stage.submit(ask(history(90, 1)))]) == [None]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_lost_device_is_told_to_all(hybrid: bool, depth: int) -> None:
    """Those in a round, those that wait, eager ones, and all that come later, at once."""
    stage = Stage(make(hybrid), depth=depth)
    with stage.held():
        futures = [stage.submit(ask(history(600, n))) for n in range(5)]
        futures.append(stage.submit(Request(history(600, 9), ()), eager=True))
        stage.meets = raises_if(lambda trunks: True, RuntimeError("CUDA error: gone"))
    assert errors_of(futures) == [EngineFault] * 6
    with pytest.raises(EngineFault, match=r"CUDA error: gone.*load it anew"):
        futures[0].result()
    late = stage.submit(ask(history(60, 1)))
    assert late.done()
    assert errors_of([late]) == [EngineFault]
    health = stage.scheduler.health
    assert (health.alive, health.waiting, health.running) == (False, 0, 0)
    assert health.fault is not None
    assert "CUDA error: gone" in health.fault
    stage.scheduler.close(drain=True)
    assert_empty(stage.pool)


def test_a_fault_of_the_bookkeeping_is_told_to_all(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is nobody's request's fault."""
    with stage.held():
        futures = [stage.submit(ask(history(300, n))) for n in range(5)]
        acquire, calls = stage.pool.acquire, count(1)

        def broken(request: Request) -> Any:
            if next(calls) == 5:
                raise KeyError("lost")
            return acquire(request)

        monkeypatch.setattr(stage.pool, "acquire", broken)
    assert errors_of(futures) == [None] * 3 + [EngineFault] * 2
    assert "KeyError" in str(futures[-1].exception())
    assert not stage.scheduler.health.alive


def test_closing_answers_what_waits_first_or_tells_it(stage: Stage, hybrid: bool) -> None:
    """As it is asked to; eager ones are never waited for, and nothing is taken any more."""
    for drain in (True, False):
        own = Stage(make(hybrid))
        with own.held():
            waiting = own.submit(ask(history(90, 1)))
            eager = own.submit(Request(history(900, 2), ()), eager=True)
            closing = threading.Thread(target=own.scheduler.close, kwargs={"drain": drain})
            closing.start()
            while own.scheduler.health.alive:
                time.sleep(0.001)
            assert errors_of([own.submit(ask(history(60, 1)))]) == [EngineFault]
        closing.join(PATIENT)
        assert errors_of([waiting, eager]) == [None if drain else EngineFault, EngineFault]
        own.scheduler.close(drain=drain)
        assert not closing.is_alive()


def test_what_was_never_used_can_be_closed(stage: Stage) -> None:
    """No thread was started for it."""
    before = threading.active_count()
    stage.scheduler.close(drain=True)
    assert threading.active_count() <= before
    with pytest.raises(EngineFault, match="closed"):
        stage.scheduler.run([ask(history(60, 1))])


def test_a_callback_may_ask_again(stage: Stage) -> None:
    """It runs in the scheduler's thread, which it must not wait for."""
    chain: list[Future[Outcome]] = []
    finished = threading.Event()

    def follow(_: Future[Outcome]) -> None:
        if len(chain) == 5:
            finished.set()
            return
        chain.append(stage.submit(ask(history(60, len(chain)))))
        chain[-1].add_done_callback(follow)

    stage.submit(ask(history(60, 9))).add_done_callback(follow)
    assert finished.wait(PATIENT)
    assert errors_of(chain) == [None] * 5


def test_one_that_fails_ends_a_run_of_several(stage: Stage) -> None:
    """What has not begun is cancelled."""
    stage.meets = raises_if(has_bad, ValueError("not so"))
    asks = [ask(history(600, n), mark=BAD if n == 0 else 0) for n in range(4)]
    with pytest.raises(ValueError, match="not so"):
        stage.scheduler.run(asks)
    stage.scheduler.close(drain=True)
    assert len(stage.rounds) < 3 + 4


def scheduler_thread() -> weakref.ref[threading.Thread]:
    """The newest one's."""
    threads = [thread for thread in threading.enumerate() if thread.name == "flide-engine"]
    return weakref.ref(threads[-1])


def ends(thread: weakref.ref[threading.Thread]) -> bool:
    """Whether a thread ends soon."""
    alive = thread()
    if alive is not None:
        alive.join(PATIENT)
    return alive is None or not alive.is_alive()


def forget(stage: Stage) -> None:
    """A stage is also the executor, which the thread holds."""
    del stage.scheduler, stage.submit


def test_a_scheduler_that_nobody_holds_ends_its_thread(hybrid: bool) -> None:
    """Also after errors, whose tracebacks hold on to much."""
    stage = Stage(make(hybrid))
    stage.meets = raises_if(has_bad, ValueError("not so"))
    for mark in (0, BAD):
        stage.submit(ask(history(60, 1), mark=mark)).exception(PATIENT)
    thread = scheduler_thread()
    forget(stage)
    del stage
    gc.collect()
    assert ends(thread)


def test_what_is_waited_for_is_answered_though_nobody_holds_the_scheduler(hybrid: bool) -> None:
    """Then the thread ends."""
    stage = Stage(make(hybrid))
    with stage.held():
        future = stage.submit(ask(history(60, 1)))
        thread = scheduler_thread()
        forget(stage)
    del stage
    gc.collect()
    assert errors_of([future]) == [None]
    del future
    gc.collect()
    assert ends(thread)


LEAVES = """
import sys, time
import torch
from tests.support.pools import make
from tests.support.serving import Stage, ask, history

torch.set_num_threads(1)
stage = Stage(make(True), max_rows=100)
matrix = torch.ones(700, 700)

def work(trunks):
    for _ in range(4):
        matrix @ matrix

stage.meets = work
futures = [stage.submit(ask(history(90, n))) for n in range(2000)]
while len(stage.rounds) < 3:
    time.sleep(0.001)
print(sum(future.done() for future in futures) < 2000)
"""


def test_the_interpreter_exits_while_rounds_wait() -> None:
    """At once and in order, though a thread is inside a product."""
    began = time.monotonic()
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LEAVES], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert time.monotonic() - began < 60
