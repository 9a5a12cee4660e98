"""One submitted request on its way: what is left of it, and when its turn comes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flide_engine.blocks import block_digests, to_bytes
from flide_engine.core import GRID, Outcome, Request
from flide_engine.marks import MARGIN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from flide_engine.lower import Restored

PATIENCE = 5
"""How many tokens that came before it a token of a request's own weighs.

So of two requests that with fewer tokens left goes first, unless much came between them: those that
come later and go first have together fewer than `PATIENCE - 1` times its own tokens.
"""


@dataclass(slots=True, eq=False)
class Work:
    """A request, its promise, and how far it is.

    Attributes:
        request: with the digests of all its full blocks.
        future: the promise.
        deadline: the `time.monotonic()` from which on it is not begun; None for never.
        eager: whether it gives way to all that is not.
        submitted: when it came.
        asked: tokens of its branches.
        limit: the deepest grid point it may resume from.
        trunk_key: equal for equal trunks of one tenant only.
        came: tokens of all requests that came before it.
        start: the place it will probably resume from.
        reached: up to where its trunk was read in pieces.
        found: the place it first resumed from; None until then.
        spent: tokens computed for its pieces.
        whole: whether it is read in no more pieces, for one did not last.
        waited: whether it waited for a checkpoint that another one leaves.
        suspect: whether a round of it alone failed.
        source: where the checkpoint that it resumes from came from.
        choice: whether one was brought up from below the device, and why, in words.
        restored: one that was, until it is on the device.
        claimed: whether its future was still ours to end when its last round began.
    """

    request: Request
    future: Future[Outcome]
    deadline: float | None = None
    eager: bool = False
    submitted: float = field(default_factory=time.monotonic)
    asked: int = field(init=False)
    limit: int = field(init=False)
    trunk_key: tuple[str, bytes, bytes] = field(init=False)
    came: int = 0
    start: int = 0
    reached: int = 0
    found: int | None = None
    spent: int = 0
    whole: bool = False
    waited: bool = False
    suspect: bool = False
    claimed: bool | None = None
    source: str = "pool"
    choice: str = ""
    restored: Restored | None = None

    def __post_init__(self) -> None:
        tenant, trunk, branches = self.request.tenant, self.request.trunk, self.request.branches
        full = len(trunk) // GRID
        digests = block_digests(tenant, trunk, full, self.request.digests)
        forks = [branch.fork for branch in branches if branch.fork is not None]
        self.request = replace(self.request, digests=digests)
        self.asked = sum(len(branch.token_ids) for branch in branches)
        self.limit = min([len(trunk) - 1, *forks]) // GRID * GRID
        self.trunk_key = (tenant, digests[-1] if full else b"", to_bytes(trunk[full * GRID :]))

    @property
    def left(self) -> int:
        """Tokens left to compute."""
        return len(self.request.trunk) - self.start + self.asked

    @property
    def rank(self) -> int:
        """The lower, the sooner."""
        return self.came + PATIENCE * self.left

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether it asks nothing, and what it would leave is there already."""
        request, length = self.request, len(self.request.trunk)
        durable = length if request.durable is None else min(request.durable, length + MARGIN)
        return not request.branches and self.start >= (durable - MARGIN) // GRID * GRID

    @property
    def gave_up(self) -> bool:
        """Whether it is eager and its checkpoints do not last."""
        return self.eager and self.whole

    def resume(self, start: int) -> None:
        """Take note of the place it can resume from now."""
        self.start = start
        self.whole |= start < self.reached

    def piece(self, end: int) -> Request:
        """What leaves a checkpoint at a grid point of its trunk, and does no more."""
        request = self.request
        digests = request.digests[: end // GRID]
        return Request(request.trunk[:end], (), request.tenant, end + MARGIN, digests)

    def claim(self) -> bool:
        """Take the right to end its future, which can then not be cancelled any more.

        False if it was cancelled before.
        """
        if self.claimed is None:
            self.claimed = self.future.set_running_or_notify_cancel()
        return self.claimed


def merged(works: Sequence[Work]) -> Request:
    """One request for some with equal trunks, which computes the trunk once."""
    requests = [work.request for work in works]
    ends = [request.durable for request in requests if request.durable is not None]
    return replace(
        requests[0],
        branches=tuple(branch for request in requests for branch in request.branches),
        durable=max(ends) if len(ends) == len(requests) else None,
    )
