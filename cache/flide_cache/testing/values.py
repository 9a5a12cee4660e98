"""Values for tests, and a way round a store to what it stored."""

from __future__ import annotations

import math
import secrets
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from flide_cache.base import Value, Want
from flide_cache.codec import Kind, octets
from flide_cache.keys import Namespace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_cache.base import CheckpointStore


class Raw(Protocol):
    """Reads and writes what a store stored, past the store's own methods."""

    def get(self, key: bytes) -> list[bytes]:
        """All stored pieces of a value, headers included, in a fixed order; [] if not held."""

    def set(self, key: bytes, pieces: Sequence[bytes]) -> None:
        """Put pieces in the place of those of a held value."""


def namespace(tenant: str = "tenant") -> Namespace:
    """A namespace that nobody else has."""
    return Namespace({"weights": secrets.token_hex(8)}, tenant, secrets.token_bytes(32))


def value_of(
    nbytes: int,
    *,
    key: bytes | None = None,
    position: int = 256,
    kind: Kind = Kind.STATE,
    seconds: float = 1.0,
    tenant: str = "",
    session: str = "",
    parent: bytes | None = None,
) -> Value:
    """A value of random bytes, under a random key if none is given."""
    return Value(
        secrets.token_bytes(32) if key is None else key,
        octets(np.random.default_rng().integers(0, 256, nbytes, np.uint8).data),
        kind,
        position,
        seconds,
        tenant,
        session,
        parent,
    )


def buffer_for(nbytes: int) -> memoryview:
    """A buffer to load into, full of what no test writes."""
    return memoryview(bytearray(b"\xa5" * nbytes))


def load_one(
    store: CheckpointStore, key: bytes, nbytes: int, deadline: float = math.inf
) -> bytes | None:
    """A value's bytes, or None."""
    into = buffer_for(nbytes)
    (held,) = store.load([Want(key, into)], deadline)
    return None if held is None else bytes(into)


def put(store: CheckpointStore, *values: Value) -> None:
    """Offer values and wait until they are stored."""
    assert store.offer(values)
    assert store.flush(time.monotonic() + 10)


def failures(store: CheckpointStore) -> int:
    """How many failures a store, and the stores it is made of, turned into misses."""
    stats = store.stats()
    return sum(
        count
        for part in (stats, *stats.tiers)
        for what, count in part.counts.items()
        if what.startswith("failed:")
    )
