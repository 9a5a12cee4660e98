"""Who holds which page and state: the tree of checkpoints and the leases, under one budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.blocks import NO_STATE, Lease, PoolUse, block_digests, path
from flide_engine.core import GRID, Request
from flide_engine.errors import RequestTooLarge
from flide_engine.marks import MARGIN, choose_marks
from flide_engine.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_engine.blocks import Block


class Pool:
    """Pages and states under one byte budget, and the tree of blocks over them.

    Args:
        num_pages, num_states: how many the storage has.
        page_bytes, state_bytes: what one weighs; without recurrent layers state_bytes is 0.
        budget_bytes: what pages and states in use may weigh together.
        cost: relative seconds to compute the tokens between two positions of a history.
        stride: tokens between the places at which lower tiers take checkpoints.
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
        stride: int = GRID,
    ) -> None:
        self.hybrid = state_bytes > 0
        self.page_bytes = page_bytes
        self.state_bytes = state_bytes
        self.budget_bytes = budget_bytes
        self.num_pages = num_pages
        self.cost = cost
        self.stride = stride
        self._free_pages = list(range(num_pages - 1, -1, -1))
        self._free_states = list(range(num_states - 1, -1, -1))
        self._num_states = num_states
        self._tree = Tree(page_bytes=page_bytes, state_bytes=state_bytes, cost=cost)
        self._leases: set[Lease] = set()

    def use(self) -> PoolUse:
        """What is held now."""
        return PoolUse(
            used_bytes=self._used_bytes(),
            budget_bytes=self.budget_bytes,
            pages=self.num_pages - len(self._free_pages),
            states=self._num_states - len(self._free_states),
            blocks=len(self._tree.blocks),
            pins=sum(lease.base is not None for lease in self._leases),
        )

    def held(self, request: Request) -> int:
        """How much of a trunk the deepest checkpoint holds from which the request could resume.

        One at the trunk's very end serves a request that asks nothing: it need not run at all.
        """
        length = len(request.trunk)
        forks = [branch.fork for branch in request.branches if branch.fork is not None]
        limit = min([length - bool(request.branches), *forks])
        digests = block_digests(request.tenant, request.trunk, length // GRID, request.digests)
        matched = self._tree.match(request, digests)
        ends = (b.end for b in reversed(matched) if b.end <= limit and self._tree.usable(b))
        return next(ends, 0)

    def acquire(self, request: Request, marks: list[int] | None = None) -> Lease | None:
        """Lease what a request needs, resuming from the deepest usable checkpoint before its end.

        Args:
            request: what is to be read.
            marks: where to leave checkpoints, above the place to resume from; by default the best
                places.

        Returns:
            The lease, or None when it must wait for leases in use to end.

        Raises:
            RequestTooLarge: when its trunk can never fit.
        """
        length = len(request.trunk)
        need = -(-length // GRID)
        self.check_fits(length)
        self._tree.clock += 1
        digests = block_digests(request.tenant, request.trunk, length // GRID, request.digests)
        matched = self._tree.match(request, digests)
        limit = min([length - 1, *(b.fork for b in request.branches if b.fork is not None)])
        base = next((b for b in reversed(matched) if b.end <= limit and self._tree.usable(b)), None)
        if not self._fits(need, base):
            # What the checkpoint itself holds may be what is missing: then it is recomputed.
            base = None
            if not self._fits(need, base):
                return None
        start = 0
        if base is not None:
            start = base.end
            base.pins += 1
            base.used = self._tree.clock
        pages = [block.page for block in matched[: start // GRID]]
        pages += self._take_pages(need - len(pages))
        parting = min(len(matched) * GRID, limit // GRID * GRID)
        if marks is None:
            marks = self._marks(request, start, parting)
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
            entered = self._tree.enter(lease, end // GRID, block)
            if entered is None:
                break
            if entered.page != lease.pages[end // GRID]:
                self._free_pages.append(lease.pages[end // GRID])
            block = entered
            block.used = self._tree.clock
            end = block.end
            if end in lease.saves and not self._tree.give_state(block, lease.saves[end]):
                self._free_states.append(lease.saves[end])
        self._free_pages.extend(lease.pages[end // GRID :])
        self._free_states.extend(state for place, state in lease.saves.items() if place > end)
        if self.hybrid and block is not None:
            for superseded in self._tree.thinned(block):
                self._drop(superseded)

    def clear(self) -> None:
        """Drop everything that no lease uses."""
        while (victim := self._tree.victim()) is not None:
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

    def _marks(self, request: Request, start: int, parting: int) -> list[int]:
        length = len(request.trunk)
        durable = length if request.durable is None else min(request.durable, length + MARGIN)
        return choose_marks(
            start=start,
            matched=parting,
            durable=durable,
            hybrid=self.hybrid,
            stride=self.stride,
        )

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
            victim = self._tree.victim(leaves_only=short_of_pages, spare=spare)
            if victim is None:
                return False
            self._drop(victim)

    def _drop(self, block: Block) -> None:
        freed = self._tree.drop(block)
        self._free_pages.extend(freed.pages)
        self._free_states.extend(freed.states)
