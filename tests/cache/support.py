"""Shared by the tests of the tiers."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from flide_cache.base import Want
from flide_cache.codec import HEADER_BYTES
from flide_cache.errors import StoreError
from flide_cache.manifest import Manifest, Names
from flide_cache.testing import buffer_for, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_cache.base import CheckpointStore, Value
    from flide_cache.host import HostStore
    from tests.cache.server import RedisServer


PAUSE = 0.15
"""Of a breaker, in these tests."""

SLOW = 1.0
"""What a busy machine may take where a test does not measure it."""


def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for something that must come."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.005)


def right_or_none(
    store: CheckpointStore, values: Sequence[Value], deadline: float = math.inf
) -> int:
    """Load values; how many came, each right."""
    buffers = [buffer_for(value.nbytes) for value in values]
    wants = [Want(v.key, into) for v, into in zip(values, buffers, strict=True)]
    found = store.load(wants, deadline)
    for value, into, held in zip(values, buffers, found, strict=True):
        assert held is None or bytes(into) == bytes(value.payload)
    return sum(held is not None for held in found)


def held(store: CheckpointStore, values: Sequence[Value]) -> list[bool]:
    """Which of them are held."""
    return [found is not None for found in store.lookup([value.key for value in values])]


class RawHost:
    """What a HostStore holds, past its methods."""

    def __init__(self, store: HostStore) -> None:
        self._entries = store._entries

    def get(self, key: bytes) -> list[bytes]:
        """One piece: header and payload."""
        entry = self._entries.get(key)
        return [] if entry is None else [entry.header + bytes(entry.value.payload)]

    def set(self, key: bytes, pieces: Sequence[bytes]) -> None:
        """In the place of the one there is; the value itself stays as it was offered."""
        (piece,) = pieces
        entry = self._entries[key]
        entry.header = piece[:HEADER_BYTES]
        value = entry.value
        entry.value = value_of(
            1,
            key=key,
            position=value.position,
            kind=value.kind,
            tenant=value.tenant,
            session=value.session,
            parent=value.parent,
        )
        entry.value.payload = memoryview(bytearray(piece[HEADER_BYTES:]))


class RawRedis:
    """What lies in the server under a key, by a client of its own: the parts, then the manifest."""

    def __init__(self, server: RedisServer, space: str = "fc1") -> None:
        self._client = server.client
        self._names = Names(space)

    def names(self, key: bytes) -> list[str]:
        """Of the parts and the manifest."""
        name = self._names.manifest(key)
        blob = self._client.get(name)
        if not isinstance(blob, bytes):
            return []
        try:
            pieces = self._names.pieces(key, Manifest.unpack(key, blob))
        except StoreError:
            return []  # harmed before, and nobody has looked since
        return [*(piece.name for piece in pieces), name]

    def get(self, key: bytes) -> list[bytes]:
        """What is there; a missing part is b""."""
        blobs = [self._client.get(name) for name in self.names(key)]
        return [blob if isinstance(blob, bytes) else b"" for blob in blobs]

    def set(self, key: bytes, pieces: Sequence[bytes]) -> None:
        """Under the names that are there now."""
        for name, piece in zip(self.names(key), pieces, strict=True):
            self._client.set(name, piece, ex=100)


def counted(store: CheckpointStore, what: str) -> int:
    """How often something happened."""
    return store.stats().counts.get(what, 0)
