"""Pools without storage, and requests of random tokens for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flide_engine.core import GRID, Branch, Request, Tokens
from flide_engine.marks import MARGIN
from flide_engine.pool import Pool

if TYPE_CHECKING:
    from flide_engine.blocks import Lease

PAGE_BYTES = 1000
STATE_BYTES = 24 * PAGE_BYTES
"""A state weighs as much as 1,536 tokens, as in the models that this is for."""


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
