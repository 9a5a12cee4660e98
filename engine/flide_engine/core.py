"""The nouns everyone passes around: a request of tokens, its branches, and what came of it.

Everything here is tokens and numbers. Text belongs to `formats`, device memory to `storage`,
and who may reuse what to `pool`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Tokens = npt.NDArray[np.int64]

GRID = 64
"""Tokens in a recurrence chunk, a page, a hashed block and between two checkpoint places.

One grid for all four, counted from the start of the state, is what lets checkpoints share pages and
a resumed pass do the same sums as a fresh one (docs/architecture.md, "One grid").
"""


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One question: the tokens after its trunk, and the tokens that may answer it.

    Attributes:
        token_ids: `[L]`, L >= 1. The answer is read at the last one.
        label_ids: `[n]`, the label token of every option, pairwise distinct.
        fork: where on the trunk the branch hangs: a multiple of `GRID`, or None for its end. One
            that hangs off an earlier place begins with the rest of the trunk it wants to see.
    """

    token_ids: Tokens
    label_ids: Tokens
    fork: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A state and the questions about it, as tokens.

    `trunk + branch.token_ids` is, token for token, the prompt of that question alone.

    Attributes:
        trunk: `[P]`, P >= 1.
        branches: may be empty: then the pass only leaves checkpoints.
        tenant: requests of different tenants never see each other's checkpoints.
        durable: how many leading trunk tokens the next request will probably begin with; what
            follows (a pending call, the template's words before the question) is not worth a
            checkpoint. None means the whole trunk; `marks.MARGIN` more than that, that nothing can
            merge with its end.
        digests: of its leading full blocks, as far as they are known (`blocks.block_digests`).
    """

    trunk: Tokens
    branches: tuple[Branch, ...]
    tenant: str = ""
    durable: int | None = None
    digests: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        """Tokens of the trunk and of all branches."""
        return len(self.trunk) + sum(len(branch.token_ids) for branch in self.branches)


@dataclass(frozen=True, slots=True)
class Reuse:
    """How much of a request was computed and how much came from a checkpoint, in tokens.

    Attributes:
        new_tokens: trunk tokens computed for this request in this round, and its branches.
        reused_tokens: trunk tokens restored from a checkpoint.
        source: "none", "pool" (a checkpoint on the device), "round" (an equal trunk beside it), or
            the name of the tier below the device that a checkpoint came from.
        choice: whether one below the device was brought up, and why; "" if there was none.
    """

    new_tokens: int
    reused_tokens: int = 0
    source: str = "none"
    choice: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass says about one request.

    Attributes:
        probabilities: one array per branch, `[n]` in float64, over its labels (paper, equation 1).
        reuse: what was computed and what was not.
    """

    probabilities: tuple[npt.NDArray[np.float64], ...]
    reuse: Reuse = field(default_factory=lambda: Reuse(0))
