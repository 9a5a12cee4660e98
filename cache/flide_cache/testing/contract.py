"""The contract of `CheckpointStore` as tests: a tier's test class inherits them.

class TestMyStore(CheckpointStoreTests):
    @pytest.fixture
    def store(self): ...            # a fresh, empty store of at least 64 MiB

    @pytest.fixture
    def raw(self, store): ...       # a `Raw` over what it stores
"""

from __future__ import annotations

import hashlib
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from flide_cache.base import CheckpointStore, Want
from flide_cache.codec import Kind
from flide_cache.testing.integrity import IntegrityTests
from flide_cache.testing.values import (
    Raw,
    buffer_for,
    failures,
    load_one,
    namespace,
    put,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_cache.base import Value

SIZES = (1, 63, 64, 4_099, 1_048_448, 1_048_449, 2_600_003)
"""Around the size of a part, and odd ones."""


class CheckpointStoreTests(IntegrityTests):
    """Inherit, and give the fixtures `store` and `raw`."""

    @pytest.mark.parametrize("nbytes", SIZES)
    def test_load_gives_what_was_offered(self, store: CheckpointStore, nbytes: int) -> None:
        """Byte for byte, at any size, with all that was said about it."""
        value = value_of(nbytes, position=512, kind=Kind.PAGES, seconds=0.25)
        put(store, value)

        into = buffer_for(nbytes)
        (held,) = store.load([Want(value.key, into)])
        (seen,) = store.lookup([value.key])

        assert held is not None
        assert bytes(into) == bytes(value.payload)
        assert held == seen
        assert (held.key, held.kind, held.position) == (value.key, Kind.PAGES, 512)
        assert (held.nbytes, held.seconds) == (nbytes, 0.25)

    @pytest.mark.parametrize("number", [int, np.int64, np.float32, np.float64])
    def test_numbers_of_any_type_are_numbers(
        self, store: CheckpointStore, number: Callable[[int], Any]
    ) -> None:
        """Whatever made them."""
        value = value_of(9, position=number(768), seconds=number(3))
        put(store, value)
        (seen,) = store.lookup([value.key])

        assert seen is not None
        assert (seen.position, seen.seconds) == (768, 3.0)
        assert load_one(store, value.key, 9) == bytes(value.payload)

    def test_what_is_not_held_is_none(self, store: CheckpointStore) -> None:
        """Among values that are held, in the order asked for, and twice if asked twice."""
        here, gone, there = (value_of(100) for _ in range(3))
        put(store, here, there)
        wanted = [gone, there, gone, here, there]
        buffers = [buffer_for(100) for _ in wanted]

        seen = store.lookup([value.key for value in wanted])
        held = store.load([Want(v.key, into) for v, into in zip(wanted, buffers, strict=True)])

        assert [h is not None for h in held] == [False, True, False, True, True]
        assert [h is not None for h in seen] == [h is not None for h in held]
        for value, into, found in zip(wanted, buffers, held, strict=True):
            assert found is None or bytes(into) == bytes(value.payload)
        assert store.stats().counts["hits"] == 3
        assert store.stats().counts["misses"] == 2

    def test_nothing_asked_is_nothing(self, store: CheckpointStore) -> None:
        """Empty lists are fine everywhere."""
        assert store.load([]) == []
        assert store.lookup([]) == []
        assert store.offer([])
        store.discard([])

    def test_offering_twice_keeps_one(self, store: CheckpointStore) -> None:
        """Values are immutable: the second offer of a key changes nothing."""
        value = value_of(5_000)
        put(store, value)
        put(store, value)

        assert load_one(store, value.key, 5_000) == bytes(value.payload)

    def test_a_restore_never_aliases(self, store: CheckpointStore, raw: Raw) -> None:
        """What a hundred borrowers write into what they loaded changes nothing stored."""
        value = value_of(70_001)
        put(store, value)
        before = [hashlib.sha256(piece).digest() for piece in raw.get(value.key)]
        for filler in range(100):
            into = buffer_for(70_001)
            (held,) = store.load([Want(value.key, into)])
            assert held is not None
            into[:] = bytes([filler]) * 70_001

        after = [hashlib.sha256(piece).digest() for piece in raw.get(value.key)]

        assert after == before
        assert load_one(store, value.key, 70_001) == bytes(value.payload)

    def test_writing_to_a_buffer_given_away_is_never_a_wrong_answer(
        self, store: CheckpointStore
    ) -> None:
        """The right bytes or none, whenever the owner breaks the rule."""
        value = value_of(300_000)
        right = bytes(value.payload)
        writable = memoryview(bytearray(right))
        value.payload = writable
        assert store.offer([value])
        writable[random.randrange(300_000)] ^= 1
        assert store.flush(time.monotonic() + 10)

        assert load_one(store, value.key, 300_000) in (None, right)

    def test_a_buffer_of_another_size_is_a_miss(self, store: CheckpointStore) -> None:
        """And no reason to throw the value away."""
        value = value_of(1_000)
        put(store, value)

        assert load_one(store, value.key, 999) is None
        assert load_one(store, value.key, 1_001) is None
        assert load_one(store, value.key, 1_000) == bytes(value.payload)

    def test_a_deadline_that_has_passed_is_a_miss(self, store: CheckpointStore) -> None:
        """Late is missing, and counted; the value stays."""
        value = value_of(1_000)
        put(store, value)

        assert load_one(store, value.key, 1_000, deadline=time.monotonic() - 1) is None
        assert failures(store) > 0
        assert load_one(store, value.key, 1_000) == bytes(value.payload)

    def test_discard_forgets_only_what_is_named(self, store: CheckpointStore) -> None:
        """The rest stays, and what is not held is no error."""
        kept, dropped = value_of(2_000), value_of(1_500_000)
        put(store, kept, dropped)
        store.discard([dropped.key, value_of(1).key])
        assert store.flush(time.monotonic() + 10)

        assert store.lookup([dropped.key]) == [None]
        assert load_one(store, dropped.key, 1_500_000) is None
        assert load_one(store, kept.key, 2_000) == bytes(kept.payload)

    def test_clear_forgets_everything(self, store: CheckpointStore) -> None:
        """What is queued too; and the store goes on."""
        values = [value_of(50_000) for _ in range(9)]
        put(store, *values[:5])
        assert store.offer(values[5:])

        assert store.clear()
        assert store.lookup([value.key for value in values]) == [None] * 9
        put(store, values[0])
        assert load_one(store, values[0].key, 50_000) == bytes(values[0].payload)

    def test_namespaces_have_nothing_in_common(self, store: CheckpointStore) -> None:
        """Another tenant, another secret or another fingerprint never hits."""
        ours, theirs = namespace("a"), namespace("b")
        place = hashlib.sha256(b"tokens").digest()
        value = value_of(500, key=ours.key(Kind.STATE, place))
        put(store, value)

        keys = [theirs.key(Kind.STATE, place), ours.key(Kind.PAGES, place)]
        assert store.lookup(keys) == [None, None]
        assert [load_one(store, key, 500) for key in keys] == [None, None]

    @pytest.mark.parametrize("key", [b"", b"x" * 31, b"x" * 33])
    def test_keys_of_another_length_are_an_error(self, store: CheckpointStore, key: bytes) -> None:
        """Bad arguments are the caller's business."""
        with pytest.raises(ValueError, match="keys have 32"):
            store.lookup([key])

    def test_threads_do_not_disturb_each_other(self, store: CheckpointStore) -> None:
        """Four of them offer, load, discard and look up; no byte is ever wrong."""
        values = [value_of(random.randrange(1, 60_000)) for _ in range(24)]

        def work(seed: int) -> None:
            choose = random.Random(seed)
            for _ in range(60):
                some = choose.sample(values, 4)
                match choose.randrange(5):
                    case 0 | 1:
                        store.offer(some)
                    case 2:
                        store.discard([some[0].key])
                    case _:
                        _load_some(store, some)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, random.sample(range(1_000_000), 4)))

        put(store, *values)
        assert _load_some(store, values) == len(values)


def _load_some(store: CheckpointStore, values: Sequence[Value]) -> int:
    """How many of the values were there; each right."""
    buffers = [buffer_for(value.nbytes) for value in values]
    found = store.load([Want(v.key, into) for v, into in zip(values, buffers, strict=True)])
    for value, into, held in zip(values, buffers, found, strict=True):
        assert held is None or bytes(into) == bytes(value.payload)
    return sum(held is not None for held in found)
