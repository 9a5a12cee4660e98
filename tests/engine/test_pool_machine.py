"""Random rounds over a tiny pool, on a storage that remembers what was written where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flide_engine.blocks import NO_STATE, block_digests, path
from flide_engine.core import GRID, Branch, Request, Tokens
from flide_engine.errors import RequestTooLarge
from flide_engine.marks import MARGIN
from flide_engine.pool import Pool
from flide_engine.round import ZERO

if TYPE_CHECKING:
    from flide_engine.blocks import Block, Lease

TENANTS = ("", "other")
PAGE_BYTES = 7
STATE_BYTES = 31
Place = tuple[str, int, bytes]
"""Whose, from which position or up to which, and the tokens."""


@dataclass
class FakeStorage:
    """Pages and states that hold the tokens they were computed from, instead of numbers."""

    pages: dict[int, Place] = field(default_factory=dict)
    states: dict[int, Place] = field(default_factory=dict)

    def spoil(self, lease: Lease) -> None:
        """Lose what was in all that a lease may write, as its pass would at any time."""
        for page in lease.own_pages:
            self.pages.pop(page, None)
        for state in lease.saves.values():
            self.states.pop(state, None)

    def write(self, lease: Lease) -> None:
        """What the pass of a lease leaves."""
        tenant, trunk = lease.request.tenant, lease.request.trunk
        for index, page in enumerate(lease.own_pages, lease.start // GRID):
            part = trunk[index * GRID : (index + 1) * GRID]
            self.pages[page] = (tenant, index * GRID, part.tobytes())
        for place, state in lease.saves.items():
            self.states[state] = (tenant, place, trunk[:place].tobytes())


def words(seed: int, count: int) -> Tokens:
    """Tokens that are the same for equal seeds, so that histories meet by chance."""
    return np.random.default_rng(seed).integers(0, 9, count)


def history_of(block: Block) -> Tokens:
    """All tokens up to the end of a block."""
    parts = [above.tokens for above in path(block)]
    return np.frombuffer(b"".join(parts[::-1]), dtype=np.int64)


class PoolMachine(RuleBasedStateMachine):
    """Requests of two tenants begin, finish and fail in any order."""

    hybrid: bool

    @initialize(pages=st.integers(3, 24), states=st.integers(1, 9), percent=st.integers(40, 110))
    def build(self, pages: int, states: int, percent: int) -> None:
        """A pool that is short of pages, of states, or of bytes."""
        state_bytes = STATE_BYTES if self.hybrid else 0
        self.num_pages = pages
        self.num_states = states if self.hybrid else 0
        self.budget = (pages * PAGE_BYTES + self.num_states * state_bytes) * percent // 100
        self.pool = Pool(
            num_pages=pages,
            num_states=self.num_states,
            page_bytes=PAGE_BYTES,
            state_bytes=state_bytes,
            budget_bytes=self.budget,
            cost=lambda start, end: (end - start) + (end**2 - start**2) / 1000,
        )
        self.storage = FakeStorage()
        self.histories: list[tuple[str, Tokens]] = [(tenant, words(0, 0)) for tenant in TENANTS]
        self.leases: list[Lease] = []

    @precondition(lambda self: len(self.leases) < 3)
    @rule(
        which=st.integers(0, 9),
        change=st.sampled_from(["grow", "grow", "grow", "edit", "cut"]),
        at=st.integers(0, 899),
        grow=st.builds(int.__add__, st.sampled_from([0, 64, 128, 256]), st.integers(0, 63)),
        seed=st.integers(0, 2),
        durable=st.sampled_from([None, None, 70, 200, -MARGIN]),
        hashed=st.integers(0, 15),
        fork=st.sampled_from([None, None, None, 0, 1, 2, 4, 8]),
        finish=st.booleans(),
    )
    def begin(
        self,
        which: int,
        change: str,
        at: int,
        grow: int,
        seed: int,
        durable: int | None,
        hashed: int,
        fork: int | None,
        finish: bool,
    ) -> None:
        """Lease for a known history, cut, edited or grown; it fits unless what is used forbids."""
        tenant, known = self.histories[-1 - which % len(self.histories)]
        trunk = known.copy()
        if len(trunk) and change == "edit":
            trunk[at % len(trunk)] = 9
        if len(trunk) and change == "cut":
            trunk = trunk[: at % len(trunk)]
        trunk = np.concatenate([trunk, words(seed, grow if len(trunk) else grow + 1)])
        fork = None if fork is None else min(fork, len(trunk) // GRID) * GRID
        branch = Branch(words(0, 3), np.arange(2), fork)
        if durable is not None:
            durable = max(len(trunk) - durable, 0)
        digests = block_digests(tenant, trunk, min(hashed, len(trunk) // GRID))
        request = Request(trunk, (branch,), tenant, durable, digests)
        before = self.pool.use()
        if self.needed(request) > min(self.num_pages, self.budget // PAGE_BYTES):
            with pytest.raises(RequestTooLarge):
                self.pool.acquire(request)
            assert self.pool.use() == before
            return
        lease = self.pool.acquire(request)
        if lease is None:
            assert not self.fits(request)
            assert self.pool.use() == before
            return
        self.histories.append((tenant, trunk))
        self.leases.append(lease)
        self.storage.spoil(lease)
        if finish:
            self.finish(-1)

    def needed(self, request: Request) -> int:
        """Pages of a request that resumes from nothing."""
        return -(-len(request.trunk) // GRID)

    def fits(self, request: Request) -> bool:
        """Whether a request fits, from its start, beside what the leases use."""
        pages = {page for lease in self.leases for page in lease.pages}
        states = {state for lease in self.leases for state in lease.saves.values()}
        states |= {lease.state_in for lease in self.leases} - {ZERO}
        count = len(pages) + self.needed(request)
        return count <= self.num_pages and (
            count * PAGE_BYTES + len(states) * STATE_BYTES <= self.budget
        )

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 2))
    def finish(self, which: int) -> None:
        """A round is done."""
        lease = self.leases.pop(which % len(self.leases))
        self.storage.write(lease)
        self.pool.commit(lease)

    @precondition(lambda self: self.leases)
    @rule(which=st.integers(0, 2))
    def fail(self, which: int) -> None:
        """A round failed; what it wrote is worth nothing."""
        self.pool.release(self.leases.pop(which % len(self.leases)))

    @precondition(lambda self: len(self.histories) % 5 == 0)
    @rule(chance=st.integers(0, 3))
    def clear(self, chance: int) -> None:
        """Only what the leases use stays."""
        if chance < 3:
            return
        self.pool.clear()
        stays = {page for lease in self.leases for page in lease.pages}
        assert self.pool.use().pages == len(stays)
        assert {block for block in self.pool._tree.stateful if not block.pins} == set()

    def teardown(self) -> None:
        """When all leases have ended and the pool is cleared, all is free."""
        if not hasattr(self, "pool"):
            return
        while self.leases:
            self.finish(0)
            self.consistent()
        self.pool.clear()
        use = self.pool.use()
        assert (use.pages, use.states, use.blocks, use.pins, use.used_bytes) == (0, 0, 0, 0, 0)
        assert sorted(self.pool._free_pages) == list(range(self.num_pages))
        assert sorted(self.pool._free_states) == list(range(self.num_states))

    @invariant()
    def a_hit_equals_recompute(self) -> None:
        """All that a lease may read was computed from its own tokens, by its own tenant."""
        for lease in self.leases:
            tenant, trunk = lease.request.tenant, lease.request.trunk
            assert len(lease.pages) == self.needed(lease.request)
            assert lease.start % GRID == 0
            assert lease.start < len(trunk)
            assert all(lease.start <= b.fork for b in lease.request.branches if b.fork is not None)
            for first, page in zip(range(0, lease.start, GRID), lease.pages, strict=False):
                wanted = (tenant, first, trunk[first : first + GRID].tobytes())
                assert self.storage.pages[page] == wanted
            assert (lease.state_in != ZERO) == (self.hybrid and lease.start > 0)
            if lease.state_in != ZERO:
                wanted = (tenant, lease.start, trunk[: lease.start].tobytes())
                assert self.storage.states[lease.state_in] == wanted
            assert all(lease.start < p <= len(trunk) and p % GRID == 0 for p in lease.saves)

    @invariant()
    def nothing_is_owned_twice(self) -> None:
        """Tree, leases and free lists share out all pages and states, and the bytes agree."""
        blocks = self.pool._tree.blocks.values()
        pages = [block.page for block in blocks]
        pages += [page for lease in self.leases for page in lease.own_pages]
        states = [block.state for block in blocks if block.state != NO_STATE]
        states += [state for lease in self.leases for state in lease.saves.values()]
        assert sorted(pages + self.pool._free_pages) == list(range(self.num_pages))
        assert sorted(states + self.pool._free_states) == list(range(self.num_states))
        use = self.pool.use()
        assert (use.pages, use.states, use.blocks) == (len(pages), len(states), len(blocks))
        assert use.used_bytes == len(pages) * PAGE_BYTES + len(states) * STATE_BYTES
        assert use.used_bytes <= use.budget_bytes == self.budget

    @invariant()
    def consistent(self) -> None:
        """The tree is one: parents, children, pins, leaves, states, and what pages hold."""
        blocks = self.pool._tree.blocks
        bases = [lease.base for lease in self.leases if lease.base is not None]
        assert self.pool.use().pins == len(bases)
        assert set(bases) <= set(blocks.values())
        for digest, block in blocks.items():
            history = history_of(block)
            parent = block.parent
            assert block.end == len(history) == (parent.end if parent else 0) + GRID
            assert parent is None or blocks[parent.digest] is parent
            assert block.children == sum(b.parent is block for b in blocks.values())
            assert block.pins == bases.count(block)
            assert (block in self.pool._tree.leaves) == (block.children == 0)
            assert (block in self.pool._tree.stateful) == (block.state != NO_STATE)
            assert block.children or not self.hybrid or block.state != NO_STATE
            tenant, first, tokens = self.storage.pages[block.page]
            assert (first + GRID, tokens) == (block.end, block.tokens)
            assert block_digests(tenant, history, block.end // GRID)[-1] == digest
            if block.state != NO_STATE:
                wanted = (tenant, block.end, history.tobytes())
                assert self.storage.states[block.state] == wanted
        assert self.pool._tree.leaves <= set(blocks.values())
        assert self.pool._tree.stateful <= set(blocks.values())


class HybridPool(PoolMachine):
    """A pool of pages and states."""

    hybrid = True


class PagePool(PoolMachine):
    """A pool of pages alone: every full page is a checkpoint."""

    hybrid = False


@pytest.mark.parametrize("machine", [HybridPool, PagePool])
def test_a_hit_equals_recompute_and_nothing_is_lost(machine: type[PoolMachine]) -> None:
    """Whatever begins, ends, fails or is evicted: reuse is exact, and each page has one owner."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=150,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
