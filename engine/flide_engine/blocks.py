"""The blocks of the checkpoint tree, and the leases that requests hold on it.

A block is one full page of `GRID` tokens, named by a digest chained over its tenant and all tokens
before it; so histories with a common opening share their blocks by construction.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flide_engine.core import GRID, Request, Tokens
from flide_engine.round import ZERO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NO_STATE = -1

BLOCK_BYTES = GRID * 8


@dataclass(slots=True, eq=False)
class Block:
    """One full page of a history.

    Attributes:
        digest: chained over the tenant and all tokens up to its end.
        tenant: whose it is.
        tokens: its `GRID` tokens; these, tenant and parent are compared on every match.
        parent: the block before it; None for the first.
        page: where its keys and values lie.
        end: tokens from the start of the history to its end.
        state: the state slot at its end, or `NO_STATE`.
        children: blocks that go on from it.
        pins: leases that resume from it.
        used: when it was last resumed from or left.
    """

    digest: bytes
    tenant: str
    tokens: bytes
    parent: Block | None
    page: int
    end: int
    state: int = NO_STATE
    children: int = 0
    pins: int = 0
    used: int = 0

    def is_same(self, tenant: str, tokens: bytes, parent: Block | None) -> bool:
        """Whether it is a history's block: equal in itself, and so is all before it."""
        return self.parent is parent and self.tokens == tokens and self.tenant == tenant


@dataclass(slots=True, eq=False)
class Lease:
    """What one request may use during its round; ends in `commit` or `release`.

    Attributes:
        request: whose it is.
        start: the grid point it resumes from.
        base: the block that ends there, pinned; None when fresh.
        pages: of the whole trunk; those from `start` on are its own.
        saves: {grid point: state slot} its own.
        last_mark: the grid point up to which its blocks are worth keeping.
        digests: of every full block of the trunk.
    """

    request: Request
    start: int
    base: Block | None
    pages: list[int]
    saves: dict[int, int]
    last_mark: int
    digests: list[bytes]

    @property
    def state_in(self) -> int:
        """The state to go on from."""
        return ZERO if self.base is None or self.base.state == NO_STATE else self.base.state

    @property
    def own_pages(self) -> list[int]:
        """Pages that nobody else holds."""
        return self.pages[self.start // GRID :]


@dataclass(frozen=True, slots=True)
class PoolUse:
    """What the pool holds, in bytes and counts."""

    used_bytes: int
    budget_bytes: int
    pages: int
    states: int
    blocks: int
    pins: int


def block_digests(
    tenant: str, tokens: Tokens, count: int, known: Sequence[bytes] = ()
) -> list[bytes]:
    """The chained digests of the first `count` blocks, 256 bits each, keyed by the tenant.

    Those that are `known`, from the first on, are taken over.
    """
    digests = list(known[:count])
    raw = to_bytes(tokens[len(digests) * GRID : count * GRID])
    digest = digests[-1] if digests else _root(tenant)
    for start in range(0, len(raw), BLOCK_BYTES):
        block = raw[start : start + BLOCK_BYTES]
        digest = hashlib.blake2b(block, key=digest, digest_size=32).digest()
        digests.append(digest)
    return digests


def to_bytes(tokens: Tokens) -> bytes:
    """Tokens in the form in which blocks hold, hash and compare them."""
    return np.ascontiguousarray(tokens, dtype="<i8").tobytes()


def _root(tenant: str) -> bytes:
    return hashlib.blake2b(tenant.encode(), digest_size=32, person=b"flide-tenant").digest()


def path(block: Block | None) -> Iterator[Block]:
    """A block and all before it, deepest first; a block may be dropped once it was given."""
    while block is not None:
        above = block.parent
        yield block
        block = above
