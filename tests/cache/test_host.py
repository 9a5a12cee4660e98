"""Memory under a budget: the contract, and who is evicted when."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from flide_cache.base import Want
from flide_cache.codec import HEADER_BYTES
from flide_cache.host import HostStore
from flide_cache.testing import (
    CheckpointStoreTests,
    StoreMachine,
    buffer_for,
    load_one,
    value_of,
)
from tests.cache.support import RawHost, held

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_cache.base import CheckpointStore
    from flide_cache.testing import Raw

SIZE = 1_000


class TestHostStore(CheckpointStoreTests):
    """The contract."""

    @pytest.fixture
    def store(self) -> HostStore:
        """Room for everything."""
        return HostStore(64 << 20)

    @pytest.fixture
    def raw(self, store: CheckpointStore) -> Raw:
        """Its entries."""
        assert isinstance(store, HostStore)
        return RawHost(store)


class Aborted(BaseException):
    """As KeyboardInterrupt, which no store may catch."""


class SlowHost(HostStore):
    """Does something in the middle of a copy."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def _copy(self, entry: object, want: Want) -> None:
        self.meanwhile()
        super()._copy(entry, want)  # type: ignore[arg-type]


class TestPins:
    """What is being copied is in use."""

    def test_what_is_being_copied_is_not_evicted(self) -> None:
        """Others are; and if nothing else is left, the offer is refused."""
        store = SlowHost(2 * (SIZE + HEADER_BYTES))
        wanted, other = value_of(SIZE, seconds=0), value_of(SIZE, seconds=9)
        store.offer([wanted, other])
        taken = []
        store.meanwhile = lambda: taken.extend(
            [store.offer([value_of(SIZE)]), store.offer([value_of(2 * SIZE)]), store.stats().pins]
        )

        assert load_one(store, wanted.key, SIZE) == bytes(wanted.payload)
        assert taken == [True, False, 1]
        assert held(store, [wanted, other]) == [True, False]
        assert store.stats().counts["dropped:in use"] == 1

    def test_what_is_discarded_while_it_is_copied_arrives(self) -> None:
        """And is gone afterwards, with its bytes."""
        store = SlowHost(2 * (SIZE + HEADER_BYTES))
        value = value_of(SIZE)
        store.offer([value])
        store.meanwhile = lambda: store.discard([value.key])

        assert load_one(store, value.key, SIZE) == bytes(value.payload)
        assert store.lookup([value.key]) == [None]
        assert (store.stats().bytes, store.stats().pins) == (0, 0)

    def test_an_aborted_load_leaves_no_pin(self) -> None:
        """A thousand of them: all pins return, all bytes can be freed."""
        store = SlowHost(3 * (SIZE + HEADER_BYTES))
        values = [value_of(SIZE) for _ in range(3)]
        store.offer(values)

        def abort() -> None:
            if random.random() < 0.5:
                raise Aborted

        store.meanwhile = abort
        for _ in range(1_000):
            try:
                store.load([Want(value.key, buffer_for(SIZE)) for value in values])
            except Aborted:
                assert store.stats().pins == 0
        store.meanwhile = lambda: None

        assert [load_one(store, v.key, SIZE) for v in values] == [bytes(v.payload) for v in values]
        assert store.offer([value_of(3 * SIZE)])


def test_buffers_come_from_the_allocator() -> None:
    """So that they can lie in page-locked memory; what is offered in them is not copied again."""
    arena = np.zeros(5_000, np.uint8)
    store = HostStore(10_000, allocator=lambda nbytes: arena[:nbytes].data)
    buffer = store.allocate(300)
    buffer[:] = bytes(range(100)) * 3
    value = value_of(300)
    value = type(value)(value.key, buffer, value.kind, value.position)
    store.offer([value])

    assert len(buffer) == 300
    assert bytes(arena[:300]) == bytes(range(100)) * 3
    assert load_one(store, value.key, 300) == bytes(range(100)) * 3
    arena[7] ^= 1
    assert load_one(store, value.key, 300) is None


class HostMachine(StoreMachine):
    """Under a budget that holds a few values only."""

    def make(self) -> tuple[CheckpointStore, Raw]:
        """A small store."""
        store = HostStore(3 << 20, tenant_bytes=2 << 20)
        return store, RawHost(store)


class RoomyHostMachine(StoreMachine):
    """With room for all: then nothing may be missing."""

    forgets = False

    def make(self) -> tuple[CheckpointStore, Raw]:
        """A large store."""
        store = HostStore(1 << 30)
        return store, RawHost(store)


@pytest.mark.parametrize("machine", [HostMachine, RoomyHostMachine])
def test_random_use(machine: type[StoreMachine]) -> None:
    """A value is right or it is None."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )
