"""Rounds from a queue: who goes first, what is read in pieces, who waits for whom, who leaves."""

from __future__ import annotations

from concurrent.futures import Future
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flide_engine.core import GRID, Branch, Request
from flide_engine.filling import WORTH_WAITING
from flide_engine.marks import MARGIN
from flide_engine.work import PATIENCE, Work
from tests.support.pools import PAGE_BYTES, STATE_BYTES, assert_empty, joined, make, words
from tests.support.serving import PATIENT, Stage, ask, history


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 3)), min_size=2, max_size=60))
def test_later_ones_that_go_first_are_few(plan: list[tuple[int, int]]) -> None:
    """However requests come and go, those that pass one have fewer than so many times its tokens.

    Each entry is how many tokens one has, and how many are served before the next one comes.
    """
    came = 0
    waiting: list[Work] = []
    passed: dict[Work, int] = {}

    def serve_first() -> None:
        first = min(waiting, key=lambda work: work.rank)
        waiting.remove(first)
        for work in waiting:
            if first.came > work.came:
                passed[work] += first.left

    for tokens, served in plan:
        work = Work(Request(np.zeros(tokens, np.int64), ()), Future(), came=came)
        came += tokens
        waiting.append(work)
        passed[work] = 0
        for _ in range(min(served, len(waiting))):
            serve_first()
    while waiting:
        serve_first()
    assert all(passed[work] < (PATIENCE - 1) * work.left for work in passed if passed[work])


def test_a_small_one_goes_before_a_large_one(stage: Stage) -> None:
    """Unless both have room in one round."""
    with stage.held():
        futures = [stage.submit(ask(history(length, length))) for length in (900, 200, 700)]
    assert [f.result(PATIENT).reuse.new_tokens for f in futures] == [905, 205, 705]
    assert stage.order() == [[200, 700], [900]]


def test_a_large_one_waits_for_no_endless_row_of_small_ones(stage: Stage) -> None:
    """New small ones come with every round, and yet its turn comes within the bound."""
    seeds = count()

    def more(_: object) -> None:
        for _ in range(3 if len(stage.rounds) < 30 else 0):
            stage.submit(ask(history(300, next(seeds))))

    with stage.held():
        large = stage.submit(ask(history(900, 9000)))
        stage.meets = more
        stage.submit(ask(history(300, next(seeds))))
    large.result(PATIENT)
    before = next(i for i, marks in enumerate(stage.order()) if 9000 in marks)
    assert sum(stage.rows()[:before]) < (PATIENCE - 1) * 905 + 1000


def test_a_long_trunk_is_read_in_pieces_with_others_between(stage: Stage) -> None:
    """No round is too large, the small ones are in the first, and all of it is computed once."""
    trunk = history(5000, 5)
    with stage.held():
        long = stage.submit(ask(trunk))
        small = [stage.submit(ask(history(150, seed))) for seed in (1, 2)]
    reuse = long.result(PATIENT).reuse
    assert (reuse.new_tokens, reuse.reused_tokens, reuse.source) == (5005, 0, "none")
    assert all(future.result(PATIENT).reuse.new_tokens == 155 for future in small)
    assert max(stage.rows()) <= 1000
    assert sorted(stage.order()[0]) == [1, 2, 5]
    assert stage.order()[1:] == [[5]] * (len(stage.rounds) - 1)
    assert sum(stage.rows()) == 5005 + 2 * 155

    longer = joined(trunk, words(3000, 6))
    reuse = stage.submit(ask(longer)).result(PATIENT).reuse
    held = (5000 - MARGIN) // GRID * GRID
    assert (reuse.new_tokens, reuse.reused_tokens, reuse.source) == (8005 - held, held, "pool")


def test_small_ones_that_keep_coming_are_in_every_round_of_a_long_one(stage: Stage) -> None:
    """Pieces leave half of the rows to others."""
    seeds = count()

    def more(_: object) -> None:
        if len(stage.rounds) < 20:
            stage.submit(ask(history(200, next(seeds))))

    with stage.held():
        long = stage.submit(ask(history(6000, 6000)))
        stage.submit(ask(history(200, next(seeds))))
        stage.meets = more
    long.result(PATIENT)
    rounds = [marks for marks in stage.order() if 6000 in marks]
    assert len(rounds) > 10
    assert all(len(marks) > 1 for marks in rounds[:10])


def test_a_long_trunk_is_read_whole_where_no_checkpoint_lasts() -> None:
    """Without room for states its first piece leaves nothing: then it runs alone, and once."""
    stage = Stage(make(True, states=0))
    reuse = stage.submit(ask(history(3000, 1))).result(PATIENT).reuse
    stage.scheduler.close(drain=True)
    assert len(stage.rounds) == 2
    assert stage.rows()[1] == 3005
    assert reuse.new_tokens == sum(stage.rows())
    assert_empty(stage.pool)


def test_a_pool_just_large_enough_reads_a_long_trunk(hybrid: bool) -> None:
    """Where a checkpoint's own state is what is missing, it is done without."""
    stage = Stage(make(hybrid, budget=50 * PAGE_BYTES, pages=50))
    assert STATE_BYTES < 50 * PAGE_BYTES
    for seed in (1, 2):
        stage.submit(ask(history(50 * GRID, seed))).result(PATIENT)
    stage.scheduler.close(drain=True)
    assert len(stage.rounds) < 20


def test_who_shares_a_long_new_opening_waits_for_its_checkpoint(stage: Stage) -> None:
    """It is computed by the first one; where they part a checkpoint is left for the third."""
    opening = history(400, 3)
    with stage.held():
        first, *others = [stage.submit(ask(joined(opening, words(60, n)))) for n in (1, 2, 3)]
    assert first.result(PATIENT).reuse.reused_tokens == 0
    reused = [future.result(PATIENT).reuse.reused_tokens for future in others]
    assert min(reused) >= WORTH_WAITING
    assert sum(stage.rows()) == 3 * 465 - sum(reused)


def test_a_short_shared_opening_is_not_waited_for(stage: Stage) -> None:
    """A round more would cost more than it saves."""
    opening = history(WORTH_WAITING - 1, 3)
    with stage.held():
        for n in (1, 2, 3):
            stage.submit(ask(joined(opening, words(60, n))))
    stage.scheduler.close(drain=True)
    assert len(stage.rounds) == 1


def test_another_tenants_opening_is_not_waited_for(stage: Stage) -> None:
    """Nothing of it could be used."""
    with stage.held():
        for tenant in ("a", "b"):
            stage.submit(ask(history(400, 3), tenant=tenant))
    stage.scheduler.close(drain=True)
    assert len(stage.rounds) == 1


def test_equal_trunks_are_computed_once_as_far_as_the_round_holds_their_questions(
    stage: Stage,
) -> None:
    """The others pay for their questions, and those that have no room find a checkpoint."""
    trunk = history(600, 3)
    with stage.held():
        futures = stage.scheduler.submit_all([ask(trunk, 150) for _ in range(4)])
    reuse = [future.result(PATIENT).reuse for future in futures]
    assert [r.source for r in reuse] == ["none", "round", "pool", "round"]
    assert [r.new_tokens for r in reuse[:2]] == [750, 150]
    assert [r.reused_tokens for r in reuse] == [0, 600, 576, 600]
    assert len(stage.rounds) == 2


def test_an_equal_trunk_that_must_be_computed_is_not_shared(stage: Stage) -> None:
    """A question that hangs off an early place would have both trunks computed from there."""
    trunk = history(600, 3)
    stage.submit(ask(trunk)).result(PATIENT)
    early = Request(trunk, (Branch(words(70), np.arange(3), fork=64),))
    late, _ = stage.scheduler.submit_all([ask(trunk), early])
    assert late.result(PATIENT).reuse.new_tokens == 600 - 576 + 5


def test_every_answer_is_its_own_questions(stage: Stage) -> None:
    """Also of questions that share a trunk."""
    trunk = history(100, 3)
    futures = stage.scheduler.submit_all([ask(trunk), Request(trunk, ()), ask(trunk)])
    counts = [len(future.result(PATIENT).probabilities) for future in futures]
    assert counts == [1, 0, 1]
    (read,) = futures[2].result().probabilities
    np.testing.assert_allclose(read, np.arange(1, 4) / 6)


def test_what_the_pool_has_no_room_for_waits_and_others_pass(hybrid: bool) -> None:
    """One round takes what fits, the next one the rest."""
    stage = Stage(make(hybrid, pages=10))
    with stage.held():
        futures = [stage.submit(ask(history(length, length))) for length in (260, 390, 60)]
    for future in futures:
        future.result(PATIENT)
    stage.scheduler.close(drain=True)
    assert [sorted(marks) for marks in stage.order()] == [[60, 260], [390]]


def test_nobody_passes_the_first_for_whom_the_pool_has_no_room() -> None:
    """While rounds are under way one after the other, a large one would never find it free."""
    stage = Stage(make(False, pages=12), max_rows=600, depth=2)
    seeds = count()

    def more(_: object) -> None:
        for _ in range(4 if len(stage.rounds) < 30 else 0):
            stage.submit(ask(history(300, next(seeds))))

    with stage.held():
        stage.submit(ask(history(300, next(seeds))))
        large = stage.submit(ask(history(550, 5500)))
        stage.meets = more
    large.result(PATIENT)
    stage.scheduler.close(drain=False)
    before = next(i for i, marks in enumerate(stage.order()) if 5500 in marks)
    assert sum(stage.rows()[:before]) < (PATIENCE - 1) * 555 + 3 * 600


@pytest.mark.parametrize(("length", "most"), [(400, 1), (501, 2)])
def test_a_round_is_launched_beside_another_only_if_it_is_full(length: int, most: int) -> None:
    """Else it would lock out whoever comes meanwhile."""
    stage = Stage(make(False), depth=2)
    with stage.held():
        futures = [stage.submit(ask(history(length, n))) for n in range(3)]
    for future in futures:
        future.result(PATIENT)
    stage.scheduler.close(drain=True)
    assert stage.most_under_way == most


def test_the_checkpoint_of_a_round_under_way_is_waited_for(hybrid: bool) -> None:
    """Whoever shares its opening is not in the round that is launched beside it."""
    stage = Stage(make(hybrid), depth=2)
    opening = history(800, 2)
    with stage.held():
        asks = [ask(joined(opening, words(90, n))) for n in (1, 2)]
        asks += [ask(history(900, n)) for n in (3, 4, 5)]
        futures = stage.scheduler.submit_all(asks)
    reused = [future.result(PATIENT).reuse.reused_tokens for future in futures]
    stage.scheduler.close(drain=True)
    assert stage.most_under_way == 2
    assert max(reused[:2]) >= WORTH_WAITING
