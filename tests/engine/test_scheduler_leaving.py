"""What leaves the queue unread, what gives way, and what can be seen of the queue."""

from __future__ import annotations

import time
from concurrent.futures import CancelledError, Future, wait
from typing import TYPE_CHECKING

import pytest

from flide_engine.core import GRID, Request
from flide_engine.errors import DeadlineExceeded, RequestTooLarge
from flide_engine.filling import EAGER_TOKENS
from flide_engine.marks import MARGIN
from tests.support.pools import joined, make, words
from tests.support.serving import PATIENT, Stage, ask, history

if TYPE_CHECKING:
    from flide_engine.core import Outcome


def test_the_deadline_of_what_waits_is_kept(stage: Stage) -> None:
    """What was not begun by then never is; what was, is answered."""
    with stage.held():
        now = time.monotonic()
        late = [stage.submit(ask(history(60, n)), deadline=now + 0.01 * n) for n in (0, 1)]
        timely = stage.submit(ask(history(60, 2)), deadline=now + PATIENT)
        time.sleep(0.02)
    for future in late:
        with pytest.raises(DeadlineExceeded, match="allow more time"):
            future.result(PATIENT)
    timely.result(PATIENT)
    assert stage.order() == [[2]]


def test_what_is_cancelled_while_it_waits_costs_nothing(stage: Stage) -> None:
    """Whoever waits for several promises is told, too."""
    with stage.held():
        futures = [stage.submit(ask(history(60, n))) for n in range(3)]
        assert futures[1].cancel()
    assert not wait(futures, PATIENT).not_done
    assert stage.order() == [[0, 2]]
    with pytest.raises(CancelledError):
        futures[1].result()


def test_what_is_in_its_last_round_cannot_be_cancelled(stage: Stage) -> None:
    """Then it is answered."""
    tried: list[bool] = []
    future: Future[Outcome]

    def cancel(_: object) -> None:
        tried.append(future.cancel())

    with stage.held():
        future = stage.submit(ask(history(60, 1)))
        stage.meets = cancel
    assert len(future.result(PATIENT).probabilities) == 1
    assert True not in tried[1:]


def test_a_long_trunk_is_read_no_further_once_it_is_cancelled(stage: Stage) -> None:
    """Between two pieces it can be."""
    with stage.held():
        future = stage.submit(ask(history(9000, 1)))
        stage.meets = lambda _: None if len(stage.rounds) < 2 else future.cancel()
    wait([future], PATIENT)
    stage.submit(ask(history(10, 2))).result(PATIENT)
    assert stage.order() == [[1], [1], [2]]


def test_eager_work_gives_way(stage: Stage) -> None:
    """It gets small rounds of its own, and none while anything else waits."""
    with stage.held():
        trunk = history(1500, 1)
        eager = stage.submit(Request(trunk, ()), eager=True)
        others = [stage.submit(ask(history(700, n))) for n in (2, 3)]
        latecomer: list[Future[Outcome]] = []

        def come(_: object) -> None:
            if len(stage.rounds) == 4:
                latecomer.append(stage.submit(ask(history(900, 4))))

        stage.meets = come
    for future in (eager, *others):
        future.result(PATIENT)
    assert stage.order() == [[2], [3], [1], [1], [4], [1]]
    assert max(stage.rows()[2:4]) <= EAGER_TOKENS
    (late,) = latecomer
    late.result(PATIENT)
    reuse = stage.submit(ask(joined(trunk, words(9)))).result(PATIENT).reuse
    assert reuse.reused_tokens == (1500 - MARGIN) // GRID * GRID


def test_eager_work_whose_end_is_held_runs_no_round(stage: Stage) -> None:
    """Most steps of an agent cross no grid point."""
    request = Request(history(640, 1), (), durable=640 + MARGIN)
    first, again = [stage.submit(request, eager=True).result(PATIENT).reuse for _ in range(2)]
    assert (first.new_tokens, first.source) == (640, "none")
    assert (again.new_tokens, again.reused_tokens, again.source) == (0, 640, "pool")
    assert sum(stage.rows()) == 640


def test_eager_work_whose_checkpoints_do_not_last_is_given_up() -> None:
    """It would run in a round that is not small."""
    stage = Stage(make(True, states=0))
    stage.submit(Request(history(3000, 1), ()), eager=True).result(PATIENT)
    stage.scheduler.close(drain=True)
    assert max(stage.rows()) <= EAGER_TOKENS
    assert len(stage.rounds) == 1


def test_what_can_never_fit_is_refused_alone(stage: Stage) -> None:
    """Its promise says so; nothing is run for it."""
    most = stage.pool.num_pages * GRID
    refused, sound = stage.scheduler.submit_all([ask(history(most + 1, 1)), ask(history(60, 2))])
    with pytest.raises(RequestTooLarge, match="shorten the state"):
        refused.result(PATIENT)
    sound.result(PATIENT)
    assert stage.order() == [[2]]


def test_health_counts_what_waits_and_what_runs(stage: Stage) -> None:
    """In requests and tokens."""
    with stage.held():
        for n in (1, 2):
            stage.submit(ask(history(100, n)))
        health = stage.scheduler.health
        assert (health.alive, health.fault) == (True, None)
        assert (health.waiting, health.running, health.waiting_tokens) == (2, 1, 210)
    stage.scheduler.close(drain=True)
    health = stage.scheduler.health
    assert (health.alive, health.waiting, health.running) == (False, 0, 0)
