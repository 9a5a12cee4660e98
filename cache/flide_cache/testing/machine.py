"""Random use of a store beside a dict, in any order."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from flide_cache.base import Want
from flide_cache.codec import Kind
from flide_cache.testing.values import buffer_for, value_of

if TYPE_CHECKING:
    from hypothesis.stateful import MultipleResults

    from flide_cache.base import CheckpointStore, Value
    from flide_cache.testing.values import Raw

TENANTS = ("", "one", "two")


class StoreMachine(RuleBasedStateMachine):
    """Offers, loads, harm and forgetting: a value is right or it is None, and never comes back.

    Inherit, give `make`, and run it with `run_state_machine_as_test`. A store whose values may
    vanish by themselves (a budget, another process) says so with `forgets`.
    """

    forgets: ClassVar[bool] = True

    values = Bundle("values")

    def make(self) -> tuple[CheckpointStore, Raw]:
        """A fresh store, and a way round it."""
        raise NotImplementedError("give make")

    @initialize(target=values)
    def start(self) -> MultipleResults[Value]:
        """An empty store, an empty model of it, and two values to begin with."""
        self.store, self.raw = self.make()
        self.model: dict[bytes, bytes] = {}
        return multiple(value_of(900), value_of(70, kind=Kind.PAGES))

    def teardown(self) -> None:
        """End the store."""
        self.store.close()

    @rule(
        target=values,
        nbytes=st.one_of(st.integers(1, 3_000), st.sampled_from([1_048_448, 1_048_449])),
        position=st.integers(1, 40).map(lambda count: 256 * count),
        tenant=st.sampled_from(TENANTS),
        session=st.sampled_from(["", "s", "t"]),
        kind=st.sampled_from([Kind.PAGES, Kind.STATE]),
        seconds=st.floats(0, 2),
    )
    def invent(
        self,
        nbytes: int,
        position: int,
        tenant: str,
        session: str,
        kind: Kind,
        seconds: float,
    ) -> Value:
        """A value that nobody has yet."""
        return value_of(
            nbytes,
            position=position,
            tenant=tenant,
            session=session if kind == Kind.STATE else "",
            kind=kind,
            seconds=seconds,
        )

    @rule(batch=st.lists(values, min_size=1, max_size=5))
    def offer(self, batch: list[Value]) -> None:
        """Each the child of the one before it; one of a session, as a second supersedes it."""
        slots = {(v.tenant, v.session) if v.session else v.key: v for v in batch}
        batch = list(slots.values())
        for parent, value in pairwise(batch):
            if value is not parent:
                value.parent = parent.key
        if self.store.offer(batch):
            assert self.store.flush(time.monotonic() + 10)
            self.model.update({value.key: bytes(value.payload) for value in batch})

    @rule(wanted=st.lists(values, min_size=1, max_size=6))
    def load(self, wanted: list[Value]) -> None:
        """Right bytes, or none; what was never offered is never there."""
        buffers = [buffer_for(value.nbytes) for value in wanted]
        found = self.store.load(
            [Want(v.key, into, v.tenant) for v, into in zip(wanted, buffers, strict=True)]
        )
        for value, into, held in zip(wanted, buffers, found, strict=True):
            expected = self.model.get(value.key)
            if held is not None:
                assert bytes(into) == expected
                assert (held.kind, held.position) == (value.kind, value.position)
                into[:] = bytes(len(into))
            else:
                assert self.forgets or expected is None

    @rule(wanted=st.lists(values, min_size=1, max_size=6))
    def look_up(self, wanted: list[Value]) -> None:
        """What is said to be held was offered, and is said to be what it is."""
        for value, held in zip(
            wanted, self.store.lookup([value.key for value in wanted]), strict=True
        ):
            if held is not None:
                assert value.key in self.model
                assert (held.nbytes, held.position) == (value.nbytes, value.position)
            else:
                assert self.forgets or value.key not in self.model

    @rule(value=values)
    def discard(self, value: Value) -> None:
        """And then it is gone."""
        self.store.discard([value.key])
        assert self.store.flush(time.monotonic() + 10)
        self.model.pop(value.key, None)

    @rule(value=values, seed=st.integers(0, 2**32))
    def harm(self, value: Value, seed: int) -> None:
        """A bit of what is stored flips: it is a value no more, unless another tier has it too."""
        pieces = self.raw.get(value.key)
        if pieces:
            choose = random.Random(seed)
            which = choose.randrange(len(pieces))
            piece = bytearray(pieces[which])
            piece[choose.randrange(len(piece))] ^= 1 << choose.randrange(8)
            self.raw.set(value.key, [*pieces[:which], bytes(piece), *pieces[which + 1 :]])
            self.store.load([Want(value.key, buffer_for(value.nbytes))])
            assert self.store.flush(time.monotonic() + 10)
        if not self.forgets:
            self.model.pop(value.key, None)

    @rule()
    def clear(self) -> None:
        """And then all is gone."""
        assert self.store.clear()
        self.model.clear()

    @invariant()
    def nothing_is_left_over(self) -> None:
        """No pin, no queued byte, no failure that nobody foresaw, no tier over its budget."""
        if not hasattr(self, "store"):
            return
        stats = self.store.stats()
        for part in (stats, *stats.tiers):
            assert part.pins == 0
            assert part.queued_bytes == 0
            assert "failed:unexpected" not in part.counts
