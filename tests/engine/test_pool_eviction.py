"""What leaves a full pool first, and that it never holds more than it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flide_engine.core import GRID
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
    from flide_engine.blocks import Lease


def test_superseded_states_go_first() -> None:
    """Short of bytes, states below a deeper one go before the end of any history."""
    pool = make(hybrid=True, budget=10**6)
    for seed in range(3):
        run(pool, words(1000, seed))
    states = pool.use().states
    assert states == 9  # 960, 512 and 256 of each
    budget = pool.use().used_bytes
    pool.budget_bytes = budget
    for taken in range(6):
        # What it needs weighs less than one state: one must go.
        lease = lease_of(pool, words(20 * GRID, 10 + taken), durable=0)
        assert pool.use().states == states - taken - 1
        pool.budget_bytes -= STATE_BYTES
        pool.release(lease)
    pool.budget_bytes += PAGE_BYTES
    for seed in range(3):
        lease = lease_of(pool, words(1001, seed))
        assert lease.start == live(1000)
        pool.release(lease)


def test_where_histories_part_is_not_superseded() -> None:
    """A common opening is worth its bytes: older leaves go before a state that many share."""
    pool = make(hybrid=True)
    opening = words(40 * GRID, 1)
    for seed in (2, 3, 4):
        run(pool, joined(opening, words(200, seed)))
    assert run(pool, joined(opening, words(200, 5))) == 40 * GRID
    pool.budget_bytes = pool.use().used_bytes
    for seed in range(6, 12):
        assert run(pool, joined(opening, words(200, seed))) == 40 * GRID


def test_the_cheapest_to_compute_again_goes_before_the_dearest(hybrid: bool) -> None:
    """Of equally old leaves, the one that saves the fewest seconds a byte."""
    pool = make(hybrid, pages=136)
    for lease in [lease_of(pool, words(8000, 1)), lease_of(pool, words(700, 2))]:
        pool.commit(lease)
    assert pool.use().pages == 134
    run(pool, words(10 * GRID, 3), durable=0)
    assert run(pool, words(8001, 1), durable=0) == live(8000)
    assert run(pool, words(701, 2), durable=0) < live(700)


def test_the_longest_unused_goes_first(hybrid: bool) -> None:
    """Of histories of the same length, whether they were left or resumed from last."""
    pool = make(hybrid, pages=4 * 10 + 1)
    for seed in range(4):
        run(pool, words(700, seed))
    run(pool, words(701, 0))
    run(pool, words(3 * GRID, 9), durable=0)
    kept = [run(pool, words(701, seed), durable=0) == live(700) for seed in range(4)]
    assert kept == [True, False, True, True]


def test_a_history_without_states_goes_page_by_page_from_its_end() -> None:
    """No more of it than must: what is left is still a checkpoint."""
    pool = make(hybrid=False, pages=20)
    run(pool, words(1000))
    run(pool, words(7 * GRID, 1), durable=0)
    assert pool.use().pages == 13
    assert run(pool, words(1000), durable=0) == 13 * GRID


def test_states_that_free_no_page_stay_when_pages_are_short() -> None:
    """Bytes enough, pages too few: only the end of a history gives back pages."""
    pool = make(hybrid=True, pages=32)
    for seed in (1, 2):
        run(pool, words(1000, seed))
    assert pool.use().states == 6
    run(pool, words(4 * GRID, 3), durable=0)
    assert pool.use().states == 5
    assert run(pool, words(1000, 1), durable=0) == 512
    assert run(pool, words(1001, 2), durable=0) == live(1000)


def test_marks_on_the_way_cost_no_other_history_its_end() -> None:
    """Only the end of a history and where it parts from another one are worth evicting a leaf."""
    pool = make(hybrid=True)
    for seed in range(4):
        run(pool, words(250, seed))
    assert pool.use().states == 4
    pages = 4000 // GRID + 1
    pool.budget_bytes = pool.use().used_bytes + pages * PAGE_BYTES + STATE_BYTES
    run(pool, words(4000, 9))
    assert pool.use().states == 5
    for seed in range(4):
        assert run(pool, words(250, seed), durable=0) == live(250)


def test_bytes_never_exceed_the_budget(hybrid: bool) -> None:
    """Through growth, edits, failures and leases side by side, at a budget of odd size."""
    rng = np.random.default_rng(5)
    pool = make(hybrid, 97_531)
    histories = [words(200, seed) for seed in range(4)]
    for _ in range(150):
        leases: list[Lease | None] = []
        for which in rng.choice(4, rng.integers(1, 4), replace=False):
            trunk = joined(histories[which], words(int(rng.integers(1, 200)), int(rng.integers(9))))
            if rng.random() < 0.3:
                trunk[rng.integers(len(trunk))] += 1
            histories[which] = trunk if len(trunk) < 3000 else trunk[:150]
            leases.append(pool.acquire(ask(trunk)))
            assert pool.use().used_bytes <= 97_531
        for lease in filter(None, leases):
            (pool.release if rng.random() < 0.2 else pool.commit)(lease)
            assert pool.use().used_bytes <= 97_531
    assert pool.use().pins == 0
    pool.clear()
    assert_empty(pool)
