"""The half of the contract that is about harm: what is not what was written is never given out."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from flide_cache.codec import HEADER_BYTES
from flide_cache.testing.values import Raw, failures, load_one, put, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flide_cache.base import CheckpointStore


class IntegrityTests:
    """A part of `CheckpointStoreTests`."""

    @pytest.fixture
    def store(self) -> CheckpointStore:
        """A fresh, empty store."""
        raise NotImplementedError("give a fixture named store")

    @pytest.fixture
    def raw(self, store: CheckpointStore) -> Raw:
        """A way round the store."""
        raise NotImplementedError("give a fixture named raw")

    @pytest.fixture(autouse=True)
    def _ends_clean(self, store: CheckpointStore) -> Iterator[None]:
        """Whatever a test did: no error that nobody foresaw, no pin and no queued byte is left."""
        yield
        assert store.flush(time.monotonic() + 10)
        stats = store.stats()
        for part in (stats, *stats.tiers):
            assert "failed:unexpected" not in part.counts
            assert part.pins == 0
            assert part.queued_bytes == 0

    @pytest.mark.parametrize("nbytes", [1, 5_000, 1_500_000])
    def test_every_flipped_bit_is_found(
        self, store: CheckpointStore, raw: Raw, nbytes: int
    ) -> None:
        """In each byte of a header and anywhere in the payload."""
        places = [*range(HEADER_BYTES), HEADER_BYTES, -1, *random.sample(range(nbytes), 1)]
        value = value_of(nbytes)
        for place in places:
            put(store, value)
            pieces = raw.get(value.key)
            which = random.randrange(len(pieces))
            piece = bytearray(pieces[which])
            piece[place % len(piece)] ^= 1 << random.randrange(8)
            raw.set(value.key, [*pieces[:which], bytes(piece), *pieces[which + 1 :]])
            failed = failures(store)

            assert load_one(store, value.key, nbytes) is None
            assert failures(store) > failed
            assert store.flush(time.monotonic() + 10)
            assert store.lookup([value.key]) == [None], "what is damaged is thrown away"

    @pytest.mark.parametrize(
        "harm",
        [
            lambda piece: piece[:-1],
            lambda piece: piece + b"\0",
            lambda piece: piece[:HEADER_BYTES],
            lambda piece: piece[: HEADER_BYTES - 1],
            lambda piece: b"",
            lambda piece: piece[:4] + bytes([piece[4] + 1]) + piece[5:],
            lambda piece: piece[::-1],
        ],
        ids=["short", "long", "headless", "half", "empty", "format", "reversed"],
    )
    def test_pieces_that_are_not_whole_are_found(
        self, store: CheckpointStore, raw: Raw, harm: Callable[[bytes], bytes]
    ) -> None:
        """Cut, stretched, or of another format."""
        value = value_of(1_300_000)
        for which in range(-2, 0):
            put(store, value)
            pieces = raw.get(value.key)
            index = which % len(pieces)
            raw.set(value.key, [*pieces[:index], harm(pieces[index]), *pieces[index + 1 :]])
            failed = failures(store)

            assert load_one(store, value.key, 1_300_000) is None
            assert failures(store) > failed
            assert store.flush(time.monotonic() + 10)

    @pytest.mark.parametrize("nbytes", [200, 2_200_000])
    def test_values_that_were_swapped_are_found(
        self, store: CheckpointStore, raw: Raw, nbytes: int
    ) -> None:
        """Equal in size, kind and position, each whole in itself, under each other's names."""
        one, other = value_of(nbytes), value_of(nbytes)
        put(store, one, other)
        pieces = raw.get(one.key)
        raw.set(one.key, raw.get(other.key))
        raw.set(other.key, pieces)
        failed = failures(store)

        assert load_one(store, one.key, nbytes) is None
        assert load_one(store, other.key, nbytes) is None
        assert failures(store) >= failed + 2

    def test_pieces_in_another_order_are_found(self, store: CheckpointStore, raw: Raw) -> None:
        """Also where every piece belongs to the value."""
        value = value_of(3 * 1_048_448)
        put(store, value)
        pieces = raw.get(value.key)
        raw.set(value.key, [*pieces[1:], pieces[0]])

        found = load_one(store, value.key, value.nbytes)

        assert found == (bytes(value.payload) if len(pieces) == 1 else None)
