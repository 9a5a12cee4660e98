"""The pool: who reuses what, what is evicted, and that nothing is lost or shared wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from flide_engine import pool as pool_module
from flide_engine.blocks import Lease, block_digests
from flide_engine.core import GRID, Branch, Request, Tokens
from flide_engine.errors import InvalidRequest, RequestTooLarge
from flide_engine.marks import MARGIN, MAX_STATES
from flide_engine.pool import Pool
from flide_engine.round import ZERO

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE_BYTES = 1000
STATE_BYTES = 24 * PAGE_BYTES
"""A state weighs as much as 1,536 tokens, as in the models that this is for."""


@pytest.fixture(params=[True, False], ids=["hybrid", "attention"])
def hybrid(request: pytest.FixtureRequest) -> bool:
    """Both kinds of model."""
    return bool(request.param)


def make(hybrid: bool, budget: int = 10**9, *, pages: int = 1500, states: int = 60) -> Pool:
    """A pool short of nothing, unless told."""
    return Pool(
        num_pages=pages,
        num_states=states if hybrid else 0,
        page_bytes=PAGE_BYTES,
        state_bytes=STATE_BYTES if hybrid else 0,
        budget_bytes=budget,
        cost=lambda start, end: (end - start) + (end**2 - start**2) / 50_000,
    )


def words(length: int, seed: int = 0) -> Tokens:
    """Tokens of a history; a longer one of the same seed begins with a shorter one."""
    return np.random.default_rng(seed).integers(0, 50_000, length)


def ask(trunk: Tokens, *, durable: int | None = None, tenant: str = "") -> Request:
    """One question about a history."""
    return Request(trunk, (Branch(words(5, 9), np.arange(3)),), tenant, durable)


def run(pool: Pool, trunk: Tokens, *, durable: int | None = None, tenant: str = "") -> int:
    """Answer one request by itself; how many tokens were reused."""
    lease = pool.acquire(ask(trunk, durable=durable, tenant=tenant))
    assert lease is not None
    assert pool.use().used_bytes <= pool.budget_bytes
    pool.commit(lease)
    return lease.start


def lease_of(pool: Pool, trunk: Tokens, *, durable: int | None = None) -> Lease:
    """A lease that must be had."""
    lease = pool.acquire(ask(trunk, durable=durable))
    assert lease is not None
    return lease


def live(length: int) -> int:
    """Where the last checkpoint of a history of so many durable tokens lies."""
    return (length - MARGIN) // GRID * GRID


def joined(*parts: Tokens) -> Tokens:
    """One history of several parts."""
    return np.concatenate(parts)


def assert_empty(pool: Pool) -> None:
    """Nothing is held."""
    use = pool.use()
    assert (use.used_bytes, use.pages, use.states, use.blocks, use.pins) == (0, 0, 0, 0, 0)


# Matching


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

    def forged(tenant: str, tokens: Tokens, count: int) -> list[bytes]:
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


def test_a_digest_depends_on_tenant_and_all_tokens_before() -> None:
    """Equal blocks at the same place in different histories have different names."""
    tokens = words(3 * GRID)
    digests = block_digests("a", tokens, 3)
    assert digests == block_digests("a", joined(tokens, words(70, 3)), 3)
    assert not set(digests) & set(block_digests("b", tokens, 3))
    tokens[0] += 1
    assert not set(digests) & set(block_digests("a", tokens, 3))
    assert len({*block_digests("a", np.zeros(5 * GRID, dtype=np.int64), 5)}) == 5


def test_the_tokens_of_a_block_are_its_own(hybrid: bool) -> None:
    """What a caller does to its array afterwards changes nothing that is held."""
    pool = make(hybrid)
    trunk = words(500)
    run(pool, trunk)
    trunk[:] = 0
    assert run(pool, words(500)) == live(500)


# Leases


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
    assert {block.pins for block in pool._blocks.values()} == {0}
    pool.clear()
    assert_empty(pool)


# Eviction


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


# Sessions


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
