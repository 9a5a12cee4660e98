"""The pool: who reuses what, and what a lease gives back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flide_engine import pool as pool_module
from flide_engine.blocks import block_digests
from flide_engine.core import GRID, Branch, Request, Tokens
from flide_engine.errors import InvalidRequest, RequestTooLarge
from flide_engine.marks import MARGIN
from flide_engine.round import ZERO
from tests.support.pools import (
    PAGE_BYTES,
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


@pytest.mark.parametrize("length", [1, 64, 71, 72, 73, 136, 333, 1000])
def test_a_longer_history_resumes_at_the_last_grid_point_before_the_margin(
    hybrid: bool, length: int
) -> None:
    """Only what is new is computed, and the pages before it are the same ones."""
    pool = make(hybrid)
    first = lease_of(pool, words(length))
    pool.commit(first)
    assert first.start == 0
    longer = lease_of(pool, words(length + 37))
    assert longer.start == max(live(length), 0)
    assert longer.pages[: longer.start // GRID] == first.pages[: longer.start // GRID]
    assert (longer.state_in != ZERO) == (hybrid and longer.start > 0)


def test_a_match_ends_before_the_last_token(hybrid: bool) -> None:
    """A trunk that is held whole still computes its last token, for a question must be read."""
    pool = make(hybrid)
    run(pool, words(4 * GRID + MARGIN))
    assert run(pool, words(4 * GRID)) == (0 if hybrid else 3 * GRID)
    assert run(pool, words(4 * GRID)) == 3 * GRID
    assert run(pool, words(4 * GRID + 1)) == 4 * GRID


def test_a_match_ends_where_a_branch_hangs(hybrid: bool) -> None:
    """A branch that forks earlier needs the state there, so the trunk resumes no later."""
    pool = make(hybrid)
    run(pool, words(1000))
    branches = tuple(Branch(words(5), np.arange(3), fork) for fork in (None, 512, 640))
    lease = pool.acquire(Request(words(1000), branches))
    assert lease is not None
    assert lease.start == 512


@pytest.mark.parametrize("alike", ["by_place", "by_own_tokens"])
def test_tokens_are_compared_when_digests_collide(
    monkeypatch: pytest.MonkeyPatch, hybrid: bool, alike: str
) -> None:
    """Histories whose digests are alike share what is equal from its start, and nothing else."""

    def forged(tenant: str, tokens: Tokens, count: int, known: Sequence[bytes]) -> list[bytes]:
        blocks = [tokens[index * GRID : (index + 1) * GRID] for index in range(count)]
        if alike == "by_place":
            return [bytes([index]) for index in range(count)]
        return [block.tobytes() for block in blocks]

    monkeypatch.setattr(pool_module, "block_digests", forged)
    pool = make(hybrid)
    first = words(1000)
    run(pool, first)
    assert run(pool, words(1000, seed=1)) == 0
    late = first.copy()
    late[600] += 1
    assert run(pool, late) == (512 if hybrid else 576)
    early = first.copy()
    early[0] += 1
    # Equal blocks behind an unequal one are another history's.
    assert run(pool, early) == 0
    assert run(pool, early) <= GRID
    assert run(pool, first, tenant="other") == 0
    assert run(pool, first) == live(1000)
    pool.clear()
    assert_empty(pool)


def test_tenants_never_share(hybrid: bool) -> None:
    """The same tokens of another tenant are computed again, and held apart."""
    pool = make(hybrid)
    run(pool, words(700), tenant="a")
    pages = pool.use().pages
    for tenant in ("", "b", "A", "a "):
        assert run(pool, words(700), tenant=tenant) == 0
        assert run(pool, words(750), tenant=tenant) == live(700)
    assert run(pool, words(750), tenant="a") == live(700)
    assert pool.use().pages > 4 * pages


def test_a_request_may_bring_its_digests(hybrid: bool) -> None:
    """Some, all or none of them: the same blocks are found, and the same are left."""
    pool = make(hybrid)
    before = 0
    for length, known in ((700, 0), (790, 10), (990, 3), (997, 15), (1300, 99)):
        request = ask(words(length))
        digests = block_digests("", request.trunk, length // GRID)
        lease = pool.acquire(replace(request, digests=digests[:known]))
        assert lease is not None
        assert lease.digests == digests
        assert lease.start == before
        pool.commit(lease)
        before = live(length)


def test_digests_of_another_history_find_nothing_of_it(hybrid: bool) -> None:
    """A caller's mistake costs it a checkpoint, and is no other tenant's or history's harm."""
    pool = make(hybrid)
    run(pool, words(700))
    foreign = block_digests("", words(700), 10)
    for request in (ask(words(700, seed=1)), ask(words(700), tenant="other")):
        lease = pool.acquire(replace(request, digests=foreign))
        assert lease is not None
        assert lease.start == 0
        pool.commit(lease)
    assert run(pool, words(700)) == live(700)


@pytest.mark.parametrize("length", [64, 100, 640, 647, 648])
def test_a_trunk_whose_end_is_sure_leaves_a_checkpoint_up_to_it(hybrid: bool, length: int) -> None:
    """What cannot merge with anything needs no margin."""
    pool = make(hybrid)
    lease = pool.acquire(Request(words(length), (), "", length + MARGIN))
    assert lease is not None
    pool.commit(lease)
    assert run(pool, words(length + 1)) == length // GRID * GRID


def test_the_tokens_of_a_block_are_its_own(hybrid: bool) -> None:
    """What a caller does to its array afterwards changes nothing that is held."""
    pool = make(hybrid)
    trunk = words(500)
    run(pool, trunk)
    trunk[:] = 0
    assert run(pool, words(500)) == live(500)


def test_a_released_lease_leaves_no_trace(hybrid: bool) -> None:
    """A round that failed: nothing is held that was not held before."""
    pool = make(hybrid)
    run(pool, words(500))
    before = pool.use()
    lease = lease_of(pool, joined(words(500), words(300, 1)))
    assert pool.use().pins == 1
    assert pool.use().pages > before.pages
    pool.release(lease)
    assert pool.use() == before
    assert run(pool, joined(words(500), words(300, 1))) == live(500)


def test_a_lease_ends_once(hybrid: bool) -> None:
    """Ending it again would free what is no longer its own."""
    pool = make(hybrid)
    lease = lease_of(pool, words(300))
    pool.commit(lease)
    for end in (pool.commit, pool.release):
        with pytest.raises(KeyError):
            end(lease)


def test_of_two_equal_blocks_the_first_one_stays(hybrid: bool) -> None:
    """Two rounds that computed the same keep it once, and the later pages are free again."""
    pool = make(hybrid)
    first, second = lease_of(pool, words(650)), lease_of(pool, words(700))
    assert not set(first.own_pages) & set(second.own_pages)
    pool.commit(first)
    pool.commit(second)
    assert pool.use().pages == live(700) // GRID
    again = lease_of(pool, words(720))
    assert again.start == live(700)
    assert again.pages[: live(650) // GRID] == first.pages[: live(650) // GRID]
    pool.release(again)
    pool.clear()
    assert_empty(pool)


def test_a_request_larger_than_the_pool_is_refused(hybrid: bool) -> None:
    """The error says how long the state is, what would fit, and what to do; nothing is touched."""
    pool = make(hybrid, 10 * PAGE_BYTES)
    run(pool, words(300))
    before = pool.use()
    with pytest.raises(RequestTooLarge, match=r"641 tokens.*holds 640 .*shorten.*pool_bytes"):
        pool.acquire(ask(words(641)))
    assert issubclass(RequestTooLarge, InvalidRequest)
    assert pool.use() == before
    run(pool, words(640))


def test_the_pool_is_as_large_as_its_pages_when_they_are_fewer_than_its_bytes(
    hybrid: bool,
) -> None:
    """Bytes enough, pages too few."""
    pool = make(hybrid, pages=5)
    with pytest.raises(RequestTooLarge, match="321 tokens"):
        pool.acquire(ask(words(321)))
    run(pool, words(320))


def test_a_request_without_room_waits_and_costs_nobody_anything(hybrid: bool) -> None:
    """It gets None while leases hold too much, evicts nothing, and succeeds after a release."""
    pool = make(hybrid, 60 * PAGE_BYTES)
    run(pool, words(200))
    busy = lease_of(pool, words(28 * GRID, 1), durable=0)
    held = pool.use()
    assert held.blocks
    assert pool.acquire(ask(words(33 * GRID, 2))) is None
    assert pool.use() == held
    pool.release(busy)
    assert run(pool, words(33 * GRID, 2)) == 0


def test_a_checkpoint_that_leaves_too_little_room_is_recomputed() -> None:
    """Alone in the pool, a trunk that fits without its checkpoint's state never waits."""
    pool = make(hybrid=True, budget=30 * PAGE_BYTES)
    run(pool, words(300))
    assert pool.use().states == 1
    assert run(pool, words(30 * GRID)) == 0


def test_a_full_pool_is_a_smaller_cache(hybrid: bool) -> None:
    """A request that leaves no room for a checkpoint is answered, and leaves what it can."""
    pool = make(hybrid, 20 * PAGE_BYTES)
    assert run(pool, words(20 * GRID)) == 0
    assert run(pool, words(20 * GRID)) == (0 if hybrid else live(20 * GRID))
    pool.clear()
    assert_empty(pool)


def test_what_leases_use_is_never_evicted(hybrid: bool) -> None:
    """Requests that need all the rest of the pool leave what is pinned as it was."""
    pool = make(hybrid, 60 * PAGE_BYTES, states=9)
    run(pool, words(600))
    pinned = lease_of(pool, words(640))
    assert pinned.start == live(600)
    shared = pinned.pages[: pinned.start // GRID]
    for seed in range(1, 9):
        other = pool.acquire(ask(words(60 * seed + 700, seed)))
        if other is not None:
            assert not set(other.pages) & set(pinned.pages)
            assert not {*other.saves.values()} & {pinned.state_in, *pinned.saves.values()}
            pool.commit(other)
    pool.clear()
    assert pool.use().blocks == len(shared)
    pool.commit(pinned)
    assert run(pool, words(660)) == live(640)
    pool.clear()
    assert_empty(pool)


def test_a_superseded_state_stays_while_a_lease_goes_on_from_it() -> None:
    """A longer history drops it only once the lease has ended."""
    pool = make(hybrid=True)
    run(pool, words(1000))
    slow = lease_of(pool, words(1001))
    run(pool, words(1200))
    states = pool.use().states
    assert slow.state_in != ZERO
    pool.release(slow)
    run(pool, words(1300))
    # 960 went, and so did 1152; 1280 came.
    assert pool.use().states == states - 1


def test_pins_return_to_zero(hybrid: bool) -> None:
    """However leases of one checkpoint end."""
    pool = make(hybrid)
    run(pool, words(500))
    leases = [lease_of(pool, words(600 + 70 * index)) for index in range(4)]
    assert pool.use().pins == 4
    pool.release(leases.pop(1))
    for lease in leases:
        pool.commit(lease)
    assert pool.use().pins == 0
    assert {block.pins for block in pool._tree.blocks.values()} == {0}
    pool.clear()
    assert_empty(pool)
