"""The pool under histories that grow, part and are edited."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flide_engine.core import GRID
from flide_engine.marks import MAX_STATES
from tests.support.pools import (
    PAGE_BYTES,
    STATE_BYTES,
    ask,
    assert_empty,
    joined,
    lease_of,
    live,
    make,
    run,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_engine.pool import Pool


def grow(pool: Pool, agents: Sequence[int], steps: int, pending: int, durable: bool) -> int:
    """Agents take turns; how many tokens of their own history were computed a second time.

    Args:
        pool: theirs.
        agents: seeds of their histories.
        steps: of all agents together.
        pending: tokens of a call after the history, different each time.
        durable: whether the request says where the history ends.
    """
    rng = np.random.default_rng(1)
    lengths = [int(rng.integers(300, 700)) for _ in agents]
    again = 0
    for step in range(steps):
        which = step % len(agents)
        before, length = lengths[which], lengths[which] + int(rng.integers(37, 300))
        trunk = joined(words(length, agents[which]), words(pending, 1000 + step))
        start = run(pool, trunk, durable=length if durable else None)
        if step >= len(agents):
            again += max(live(before) - start, 0)
        lengths[which] = length
    return again


@pytest.mark.parametrize("pending", [0, 50, 201])
def test_three_agents_whose_live_states_fit_miss_nothing(hybrid: bool, pending: int) -> None:
    """Thirty turns: every one resumes at the end of what the last one left."""
    # At most 10 turns of 300 tokens after 700; a turn also needs its own pages and its new state.
    live_pages = 3 * (3700 // GRID)
    states = 4 if hybrid else 0
    budget = (live_pages + (300 + pending) // GRID + 2) * PAGE_BYTES + states * STATE_BYTES
    probe = make(hybrid)
    assert grow(probe, [1, 2, 3], 30, pending, durable=True) == 0
    assert grow(make(hybrid, budget), [1, 2, 3], 30, pending, durable=True) == 0


def test_one_history_too_many_is_a_miss_and_no_error(hybrid: bool) -> None:
    """The three agents of the test above with a third of the bytes are slower, not wrong."""
    pool = make(hybrid, 60 * PAGE_BYTES)
    assert grow(pool, [1, 2, 3], 30, 50, durable=True) > 0
    pool.clear()
    assert_empty(pool)


def test_two_states_with_a_common_opening_hold_it_once(hybrid: bool) -> None:
    """8k tokens in common: its pages are there once, and the second state reuses what it can."""
    pool = make(hybrid)
    opening = words(8000, 1)
    run(pool, joined(opening, words(500, 2)))
    assert pool.use().pages == live(8500) // GRID
    second = run(pool, joined(opening, words(700, 3)))
    assert second == (4096 if hybrid else 8000)
    # Both tails, and the opening once.
    assert pool.use().pages == live(8500) // GRID + (live(8700) - 8000) // GRID
    assert run(pool, joined(opening, words(600, 4))) == 8000


@pytest.mark.parametrize("pending", [0, 90])
def test_growing_to_16k_holds_little_more_than_the_live_state(hybrid: bool, pending: int) -> None:
    """Pool bytes stay within 1.3 of the live pages and the kept states, of which there are six."""
    rng = np.random.default_rng(7)
    pool = make(hybrid)
    length = 2000
    while length < 16_384:
        run(pool, joined(words(length), words(pending, length)), durable=length)
        use = pool.use()
        assert use.states <= MAX_STATES
        pages = -(-length // GRID)
        assert use.used_bytes <= 1.3 * (pages * PAGE_BYTES + use.states * pool.state_bytes)
        for place in range(512, length, 301):
            edited = words(length)
            edited[place] += 1
            lease = lease_of(pool, edited, durable=0)
            assert 2 * lease.start >= place
            pool.release(lease)
        length += int(rng.integers(37, 501))


@pytest.mark.parametrize("durable", [True, False])
def test_an_agent_whose_pending_call_follows_its_history_reuses_the_history(
    hybrid: bool, durable: bool
) -> None:
    """Told or not: if not, where the calls part shows it, one turn later."""
    pool = make(hybrid)
    rng = np.random.default_rng(3)
    lengths = np.cumsum([700, *rng.integers(50, 400, 25)])
    for turn, length in enumerate(lengths):
        trunk = joined(words(length), words(120, 100 + turn))
        start = run(pool, trunk, durable=int(length) if durable else None)
        if durable and turn:
            assert start == live(lengths[turn - 1])
        elif turn > 1:
            wanted = lengths[turn - (2 if hybrid else 1)]
            assert start >= wanted // GRID * GRID
    pool.clear()
    assert_empty(pool)


def test_undeclared_pending_calls_do_not_crowd_out_the_history(hybrid: bool) -> None:
    """Three agents that do not say where their history ends, with room for it twice over."""
    states = 9 if hybrid else 0
    budget = 2 * 3 * (3700 // GRID) * PAGE_BYTES + states * STATE_BYTES
    again = grow(make(hybrid, budget), [1, 2, 3], 30, 120, durable=False)
    # One turn of at most 300 tokens late, each time.
    assert again <= (27 * 300 if hybrid else 0)


def test_a_growing_history_that_is_edited_keeps_its_checkpoints_close() -> None:
    """Edits here and there: each resumes at half of its place or later."""
    rng = np.random.default_rng(2)
    pool = make(hybrid=True, states=500)
    trunk = words(2000)
    run(pool, trunk)
    for step in range(60):
        trunk = joined(trunk, words(int(rng.integers(37, 300)), 100 + step))[:8000]
        place = int(rng.integers(512, len(trunk)))
        if step % 3 == 0:
            trunk[place] += 1
            assert 2 * run(pool, trunk) >= min(place, 2 * live(2000))
        else:
            run(pool, trunk)
    pool.clear()
    assert_empty(pool)


def test_a_history_cut_short_goes_on_from_where_it_was_cut(hybrid: bool) -> None:
    """An undo: the shorter history leaves a checkpoint of its own, on pages that are there."""
    pool = make(hybrid)
    run(pool, words(3000))
    pages = pool.use().pages
    cut = run(pool, words(1500))
    assert cut == (1024 if hybrid else live(1500) + GRID * (live(1500) + GRID < 1500))
    assert pool.use().pages == pages
    assert run(pool, joined(words(1500), words(99, 4))) >= live(1500)


def test_a_request_for_no_checkpoint_leaves_none(hybrid: bool) -> None:
    """Nothing durable: nothing stays."""
    pool = make(hybrid)
    run(pool, words(1000), durable=0)
    assert_empty(pool)
    lease = pool.acquire(replace(ask(words(1000)), durable=5000))
    assert lease is not None, "a durable end beyond the trunk is the end of the trunk"
    pool.commit(lease)
    assert pool.use().pages == live(1000) // GRID
