"""Stores in front of one another: the fastest first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flide_cache.base import CheckpointStore, Stats, Value
from flide_cache.errors import Unreachable
from flide_cache.policy import Admission

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_cache.base import Held, Want
    from flide_cache.policy import RestoreModel


class Tier(NamedTuple):
    """A store, and what it takes."""

    store: CheckpointStore
    admission: Admission = Admission()


class TieredStore(CheckpointStore):
    """Looks in each tier in turn, keeps what it finds in the faster ones, and offers to all.

    Args:
        tiers: the fastest first. Closing this closes them.
        model: learns from every load how fast the tiers are.
        name: of the whole.

    Raises:
        ValueError: the model has no prior for a tier.
    """

    def __init__(
        self, tiers: Sequence[Tier], model: RestoreModel | None = None, *, name: str = "tiered"
    ) -> None:
        super().__init__(name)
        self.tiers = tuple(tiers)
        self.model = model
        for tier in self.tiers:
            if model is not None and tier.store.name not in model.tiers:
                raise ValueError(
                    f"the tier {tier.store.name!r} is not among those of the model "
                    f"({', '.join(model.tiers)}): give RestoreModel a Speed for it."
                )

    def allocate(self, nbytes: int) -> memoryview:
        """A buffer as the fastest tier likes it."""
        return self.tiers[0].store.allocate(nbytes)

    def stats(self) -> Stats:
        """What it did, and what each tier did and holds."""
        parts = tuple(tier.store.stats() for tier in self.tiers)
        return Stats(
            self.name,
            self._counted(),
            entries=sum(part.entries for part in parts),
            bytes=sum(part.bytes for part in parts),
            queued_bytes=sum(part.queued_bytes for part in parts),
            pins=sum(part.pins for part in parts),
            paused_seconds=max(part.paused_seconds for part in parts),
            tiers=parts,
        )

    def close(self) -> None:
        """Close all tiers."""
        for tier in self.tiers:
            tier.store.close()

    def _lookup(self, keys: Sequence[bytes], deadline: float, found: list[Held | None]) -> None:
        for tier in self.tiers:
            missing = [index for index, held in enumerate(found) if held is None]
            if missing:
                some = tier.store.lookup([keys[index] for index in missing], deadline)
                for index, held in zip(missing, some, strict=True):
                    found[index] = held

    def _load(self, wants: Sequence[Want], deadline: float, found: list[Held | None]) -> None:
        for depth, tier in enumerate(self.tiers):
            missing = [index for index, held in enumerate(found) if held is None]
            if not missing:
                return
            began = time.monotonic()
            some = tier.store.load([wants[index] for index in missing], deadline)
            seconds = time.monotonic() - began
            nbytes = sum(held.nbytes for held in some if held is not None)
            if self.model is not None and nbytes:
                self.model.loaded(tier.store.name, nbytes, seconds)
            for index, held in zip(missing, some, strict=True):
                found[index] = held
                if held is not None:
                    self._promote(wants[index], held, depth)

    def _promote(self, want: Want, held: Held, depth: int) -> None:
        """Keep a copy of what was found in each faster tier; the buffer is its borrower's."""
        for tier in self.tiers[:depth]:
            copy = tier.store.allocate(held.nbytes)
            np.copyto(np.frombuffer(copy, np.uint8), np.frombuffer(want.into, np.uint8))
            value = Value(
                want.key,
                copy,
                held.kind,
                held.position,
                held.seconds,
                tenant=want.tenant,
                parent=want.parent,
            )
            if tier.admission.admits(value):
                tier.store.offer([value])

    def _offer(self, values: Sequence[Value]) -> str:
        taken = [
            tier.store.offer(admitted)
            for tier in self.tiers
            if (admitted := [value for value in values if tier.admission.admits(value)])
        ]
        if not taken:
            return "not admitted"
        return "" if any(taken) else "refused by all tiers"

    def _flush(self, deadline: float) -> bool:
        return all(tier.store.flush(deadline) for tier in self.tiers)

    def _discard(self, keys: Sequence[bytes]) -> None:
        for tier in self.tiers:
            tier.store.discard(keys)

    def _clear(self) -> None:
        cleared = [tier.store.clear() for tier in self.tiers]
        if not all(cleared):
            raise Unreachable("not every tier could be cleared")
