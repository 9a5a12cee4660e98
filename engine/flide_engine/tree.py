"""The tree of blocks on the device: what a request finds in it, and what leaves it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flide_engine.blocks import BLOCK_BYTES, NO_STATE, Block, path, to_bytes
from flide_engine.core import GRID
from flide_engine.marks import MAX_STATES, superseded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_engine.blocks import Lease
    from flide_engine.core import Request


class Freed(NamedTuple):
    """What nobody holds any more."""

    pages: list[int]
    states: list[int]


class Tree:
    """Blocks by digest.

    A model without recurrent layers resumes at any block; one with them at blocks that hold a
    state.

    Args:
        page_bytes, state_bytes: what one weighs; without recurrent layers state_bytes is 0.
        cost: relative seconds to compute the tokens between two positions of a history.

    Attributes:
        blocks: all of them.
        leaves: those that none goes on from.
        stateful: those that hold a state.
        clock: how many requests there were, which tells the age of a block.
    """

    def __init__(
        self, *, page_bytes: int, state_bytes: int, cost: Callable[[int, int], float]
    ) -> None:
        self._hybrid = state_bytes > 0
        self._page_bytes = page_bytes
        self._state_bytes = state_bytes
        self._cost = cost
        self.blocks: dict[bytes, Block] = {}
        self.leaves: set[Block] = set()
        self.stateful: set[Block] = set()
        self.clock = 0

    def usable(self, block: Block) -> bool:
        """Whether a request may resume from a block."""
        return not self._hybrid or block.state != NO_STATE

    def match(self, request: Request, digests: Sequence[bytes]) -> list[Block]:
        """The leading blocks of a trunk that are held."""
        raw = to_bytes(request.trunk)
        matched: list[Block] = []
        parent = None
        for index, digest in enumerate(digests):
            block = self.blocks.get(digest)
            tokens = raw[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES]
            if block is None or not block.is_same(request.tenant, tokens, parent):
                break
            matched.append(block)
            parent = block
        return matched

    def enter(self, lease: Lease, index: int, parent: Block | None) -> Block | None:
        """The block of a lease's page: the one that is there already, or a new one.

        None where another one bears its digest.
        """
        request, digest = lease.request, lease.digests[index]
        end = (index + 1) * GRID
        tokens = to_bytes(request.trunk[end - GRID : end])
        block = self.blocks.get(digest)
        if block is not None:
            return block if block.is_same(request.tenant, tokens, parent) else None
        block = Block(digest, request.tenant, tokens, parent, lease.pages[index], end)
        self.blocks[digest] = block
        self.leaves.add(block)
        if parent is not None:
            parent.children += 1
            self.leaves.discard(parent)
        return block

    def give_state(self, block: Block, state: int) -> bool:
        """Let a block hold a state; whether it had none."""
        if block.state != NO_STATE:
            return False
        block.state = state
        self.stateful.add(block)
        return True

    def victim(self, *, leaves_only: bool = False, spare: bool = False) -> Block | None:
        """What to drop next, by seconds saved per byte and age.

        States that a deeper one supersedes go first; with `spare` nothing else goes. Then come
        leaves, and states at which several histories part.
        """
        leaves = [block for block in self.leaves if not block.pins]
        inner = [block for block in self.stateful if block.children and not block.pins]
        superseded = [block for block in inner if block.children == 1]
        if leaves_only:
            candidates = leaves
        elif superseded or spare:
            candidates = superseded
        else:
            candidates = leaves + inner
        return min(candidates, key=self._worth, default=None)

    def drop(self, block: Block) -> Freed:
        """Drop a state, and with a leaf every page that then serves no state."""
        freed = Freed([], [])
        if block.state != NO_STATE:
            freed.states.append(block.state)
            self.stateful.discard(block)
            block.state = NO_STATE
        if not block.children:
            self._prune(block, freed.pages)
        return freed

    def thinned(self, block: Block) -> list[Block]:
        """Blocks whose states may go, so that few are kept on the way to a new checkpoint.

        No two of those that stay are further apart than a doubling.
        """
        kept = [b for b in path(block) if b.state != NO_STATE]
        forks = {b.end for b in kept if b.children > 1}
        pinned = {b.end for b in kept if b.pins}
        drop = superseded([b.end for b in kept], forks=forks, limit=MAX_STATES) - pinned
        return [b for b in kept if b.end in drop]

    def _worth(self, block: Block) -> float:
        """Seconds of recompute that a byte of the block saves, less the older it is."""
        before = next((b.end for b in path(block.parent) if self.usable(b)), 0)
        pages = 0 if block.children else (block.end - before) // GRID
        nbytes = pages * self._page_bytes + (block.state != NO_STATE) * self._state_bytes
        return self._cost(before, block.end) / nbytes / (1 + self.clock - block.used)

    def _prune(self, block: Block | None, pages: list[int]) -> None:
        """Remove a leaf, and on hybrids the stateless run above it."""
        while block is not None:
            del self.blocks[block.digest]
            self.leaves.discard(block)
            pages.append(block.page)
            parent = block.parent
            if parent is None:
                return
            parent.children -= 1
            if not parent.children:
                self.leaves.add(parent)
            parent.used = max(parent.used, block.used)
            if not self._hybrid or parent.children or parent.state != NO_STATE:
                return
            block = parent
