"""Who holds which page and state: the tree of checkpoints on the device, under one byte budget.

A model without recurrent layers resumes at any block; one with them at blocks that hold a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.blocks import NO_STATE, Block, Lease, PoolUse, block_digests, is_block, path
from flide_engine.core import GRID, Request
from flide_engine.errors import RequestTooLarge
from flide_engine.marks import MAX_STATES, choose_marks, superseded

if TYPE_CHECKING:
    from collections.abc import Callable


class Pool:
    """Pages and states under one byte budget, and the tree of blocks over them.

    Args:
        num_pages, num_states: how many the storage has.
        page_bytes, state_bytes: what one weighs; without recurrent layers state_bytes is 0.
        budget_bytes: what pages and states in use may weigh together.
        cost: relative seconds to compute the tokens between two positions of a history.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        num_states: int,
        page_bytes: int,
        state_bytes: int,
        budget_bytes: int,
        cost: Callable[[int, int], float],
    ) -> None:
        self.hybrid = state_bytes > 0
        self.page_bytes = page_bytes
        self.state_bytes = state_bytes
        self.budget_bytes = budget_bytes
        self.num_pages = num_pages
        self.cost = cost
        self._free_pages = list(range(num_pages - 1, -1, -1))
        self._free_states = list(range(num_states - 1, -1, -1))
        self._num_states = num_states
        self._blocks: dict[bytes, Block] = {}
        self._leaves: set[Block] = set()
        self._stateful: set[Block] = set()
        self._leases: set[Lease] = set()
        self._clock = 0

    def use(self) -> PoolUse:
        """What is held now."""
        return PoolUse(
            used_bytes=self._used_bytes(),
            budget_bytes=self.budget_bytes,
            pages=self.num_pages - len(self._free_pages),
            states=self._num_states - len(self._free_states),
            blocks=len(self._blocks),
            pins=sum(lease.base is not None for lease in self._leases),
        )

    def acquire(self, request: Request) -> Lease | None:
        """Lease what a request needs, resuming from the deepest usable checkpoint before its end.

        Returns:
            The lease, or None when it must wait for leases in use to end.

        Raises:
            RequestTooLarge: when its trunk can never fit.
        """
        length = len(request.trunk)
        need = -(-length // GRID)
        self.check_fits(length)
        self._clock += 1
        digests = block_digests(request.tenant, request.trunk, length // GRID)
        matched = self._match(request, digests)
        limit = min([length - 1, *(b.fork for b in request.branches if b.fork is not None)])
        base = next((b for b in reversed(matched) if b.end <= limit and self._usable(b)), None)
        if not self._fits(need, base):
            # What the checkpoint itself holds may be what is missing: then it is recomputed.
            base = None
            if not self._fits(need, base):
                return None
        start = 0
        if base is not None:
            start = base.end
            base.pins += 1
            base.used = self._clock
        pages = [block.page for block in matched[: start // GRID]]
        pages += self._take_pages(need - len(pages))
        parting = min(len(matched) * GRID, limit // GRID * GRID)
        marks = choose_marks(
            start=start,
            matched=parting,
            durable=length if request.durable is None else min(request.durable, length),
            hybrid=self.hybrid,
        )
        saves = self._take_states(marks, parting) if self.hybrid else {}
        last = max(saves if self.hybrid else marks, default=start)
        lease = Lease(request, start, base, pages, saves, last, digests)
        self._leases.add(lease)
        return lease

    def release(self, lease: Lease) -> None:
        """End a lease and keep nothing of it: its round failed or was not finite."""
        self._end(lease)
        self._free_pages.extend(lease.own_pages)
        self._free_states.extend(lease.saves.values())

    def commit(self, lease: Lease) -> None:
        """End a lease whose round is done: its blocks up to the last mark enter the tree.

        Where a block is there already, the first one stays and this one's page is free again.
        """
        self._end(lease)
        block = lease.base
        end = lease.start
        while end < lease.last_mark:
            entered = self._enter(lease, end // GRID, block)
            if entered is None:
                break
            block = entered
            block.used = self._clock
            end = block.end
            if end in lease.saves:
                self._give_state(block, lease.saves[end])
        self._free_pages.extend(lease.pages[end // GRID :])
        self._free_states.extend(state for place, state in lease.saves.items() if place > end)
        if self.hybrid and block is not None:
            self._thin(block)

    def clear(self) -> None:
        """Drop everything that no lease uses."""
        while (victim := self._victim()) is not None:
            self._drop(victim)

    def check_fits(self, length: int) -> None:
        """Raise RequestTooLarge for a trunk of `length` tokens that waiting will not make fit."""
        need = -(-length // GRID)
        room = min(self.num_pages, self.budget_bytes // self.page_bytes)
        if need > room:
            raise RequestTooLarge(
                f"the state has {length} tokens, but the pool holds {room * GRID} in all: "
                "shorten the state or give the engine a larger pool (pool_bytes)."
            )

    def _match(self, request: Request, digests: list[bytes]) -> list[Block]:
        """The leading blocks that are held."""
        matched: list[Block] = []
        for index, digest in enumerate(digests):
            parent = matched[-1] if matched else None
            block = self._blocks.get(digest)
            if block is None or not is_block(block, request, index, parent):
                break
            matched.append(block)
        return matched

    def _enter(self, lease: Lease, index: int, parent: Block | None) -> Block | None:
        """The block of a lease's page in the tree; None where another one bears its digest."""
        request, digest, page = lease.request, lease.digests[index], lease.pages[index]
        known = self._blocks.get(digest)
        if known is not None:
            if not is_block(known, request, index, parent):
                return None
            self._free_pages.append(page)
            return known
        end = (index + 1) * GRID
        tokens = request.trunk[end - GRID : end].copy()
        block = Block(digest, request.tenant, tokens, parent, page, end)
        self._blocks[digest] = block
        self._leaves.add(block)
        if parent is not None:
            parent.children += 1
            self._leaves.discard(parent)
        return block

    def _give_state(self, block: Block, state: int) -> None:
        if block.state == NO_STATE:
            block.state = state
            self._stateful.add(block)
        else:
            self._free_states.append(state)

    def _usable(self, block: Block) -> bool:
        return not self.hybrid or block.state != NO_STATE

    def _end(self, lease: Lease) -> None:
        self._leases.remove(lease)
        if lease.base is not None:
            lease.base.pins -= 1

    def _used_bytes(self) -> int:
        pages = self.num_pages - len(self._free_pages)
        states = self._num_states - len(self._free_states)
        return pages * self.page_bytes + states * self.state_bytes

    def _fits(self, need: int, base: Block | None) -> bool:
        """Whether a trunk of `need` pages that resumes from `base` fits beside the leases.

        Known before anything is evicted, so that a request that must wait costs nobody anything.
        """
        own = need - (base.end // GRID if base else 0)
        nbytes = own * self.page_bytes
        if own <= len(self._free_pages) and self._used_bytes() + nbytes <= self.budget_bytes:
            return True
        pages = {block.page for block in path(base)}
        states = {NO_STATE if base is None else base.state}
        for lease in self._leases:
            pages.update(lease.pages)
            states.update(lease.saves.values(), [lease.state_in])
        states.discard(NO_STATE)
        nbytes += len(pages) * self.page_bytes + len(states) * self.state_bytes
        return len(pages) + own <= self.num_pages and nbytes <= self.budget_bytes

    def _take_pages(self, count: int) -> list[int]:
        """Pages that `_fits` promised, evicting what is worth least."""
        made = self._make_room(pages=count)
        assert made, "whatever no lease uses can be evicted"
        return [self._free_pages.pop() for _ in range(count)]

    def _take_states(self, marks: list[int], parting: int) -> dict[int, int]:
        """State slots for as many marks as there is room for: a full pool is a smaller cache.

        The end and where histories part are worth the end of an older history; other marks are not.
        """
        saves = {}
        for mark in marks:
            if not self._make_room(states=1, spare=mark not in (marks[0], parting)):
                break
            saves[mark] = self._free_states.pop()
        return saves

    def _make_room(self, *, pages: int = 0, states: int = 0, spare: bool = False) -> bool:
        nbytes = pages * self.page_bytes + states * self.state_bytes
        while True:
            short_of_pages = len(self._free_pages) < pages
            if (
                not short_of_pages
                and len(self._free_states) >= states
                and self._used_bytes() + nbytes <= self.budget_bytes
            ):
                return True
            victim = self._victim(leaves_only=short_of_pages, spare=spare)
            if victim is None:
                return False
            self._drop(victim)

    def _victim(self, *, leaves_only: bool = False, spare: bool = False) -> Block | None:
        """What to evict next, by seconds saved per byte and age.

        States that a deeper one supersedes go first; with `spare` nothing else goes. Then come
        leaves, and states at which several histories part.
        """
        leaves = [block for block in self._leaves if not block.pins]
        inner = [block for block in self._stateful if block.children and not block.pins]
        superseded = [block for block in inner if block.children == 1]
        if leaves_only:
            candidates = leaves
        elif superseded or spare:
            candidates = superseded
        else:
            candidates = leaves + inner
        return min(candidates, key=self._worth, default=None)

    def _worth(self, block: Block) -> float:
        """Seconds of recompute that a byte of the block saves, less the older it is."""
        before = next((b.end for b in path(block.parent) if self._usable(b)), 0)
        pages = 0 if block.children else (block.end - before) // GRID
        nbytes = pages * self.page_bytes + (block.state != NO_STATE) * self.state_bytes
        return self.cost(before, block.end) / nbytes / (1 + self._clock - block.used)

    def _drop(self, block: Block) -> None:
        """Drop a state, and with a leaf every page that then serves no state."""
        if block.state != NO_STATE:
            self._free_states.append(block.state)
            self._stateful.discard(block)
            block.state = NO_STATE
        if not block.children:
            self._prune(block)

    def _prune(self, block: Block | None) -> None:
        """Remove a leaf, and on hybrids the stateless run above it."""
        while block is not None:
            del self._blocks[block.digest]
            self._leaves.discard(block)
            self._free_pages.append(block.page)
            parent = block.parent
            if parent is None:
                return
            parent.children -= 1
            if not parent.children:
                self._leaves.add(parent)
            parent.used = max(parent.used, block.used)
            if not self.hybrid or parent.children or parent.state != NO_STATE:
                return
            block = parent

    def _thin(self, block: Block) -> None:
        """Keep few states on the way to a new checkpoint, no two further apart than a doubling."""
        kept = [b for b in path(block) if b.state != NO_STATE]
        forks = {b.end for b in kept if b.children > 1}
        pinned = {b.end for b in kept if b.pins}
        drop = superseded([b.end for b in kept], forks=forks, limit=MAX_STATES) - pinned
        for b in kept:
            if b.end in drop:
                self._drop(b)
