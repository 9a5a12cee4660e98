"""Values in this machine's memory, under a byte budget."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flide_cache.base import CheckpointStore, Held, Stats
from flide_cache.codec import HEADER_BYTES, Label, check, octets, seal
from flide_cache.errors import Damaged, Foreign, Late, WrongSize
from flide_cache.policy import EvictionOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_cache.base import Value, Want
    from flide_cache.codec import Buffer


@dataclass(slots=True, eq=False)
class _Entry:
    """A value that is held.

    Attributes:
        uses: how often it was offered or loaded.
        pins: who copies it out, or is making room for it, right now.
        superseded: its session has a newer state.
    """

    value: Value
    header: bytes
    uses: int = 1
    pins: int = 0
    superseded: bool = False

    @property
    def nbytes(self) -> int:
        return self.value.nbytes + HEADER_BYTES


class HostStore(CheckpointStore):
    """Values in memory: it keeps the buffers it is offered, and loads copy out of them.

    Args:
        budget_bytes: what all values, headers included, may weigh.
        tenant_bytes: what one tenant's may weigh; None for no limit but the budget.
        allocator: gives a writable buffer of so many bytes (page-locked memory, say); None for
            plain memory.
        name: of the tier.
    """

    def __init__(
        self,
        budget_bytes: int,
        *,
        tenant_bytes: int | None = None,
        allocator: Callable[[int], Buffer] | None = None,
        name: str = "host",
    ) -> None:
        super().__init__(name)
        self.budget_bytes = budget_bytes
        self.tenant_bytes = budget_bytes if tenant_bytes is None else tenant_bytes
        self._allocator = allocator
        self._lock = threading.Lock()
        self._entries: dict[bytes, _Entry] = {}
        self._newest: dict[tuple[str, str], bytes] = {}
        # By the key of the parent, whether it is held or not: children may come first.
        self._children: Counter[bytes] = Counter()
        self._tenants: Counter[str] = Counter()
        self._order = EvictionOrder()
        self._bytes = 0
        self._pins = 0

    def allocate(self, nbytes: int) -> memoryview:
        """A buffer from the allocator."""
        if self._allocator is None:
            return super().allocate(nbytes)
        return octets(self._allocator(nbytes))

    def stats(self) -> Stats:
        """What it did and holds."""
        with self._lock:
            return Stats(
                self.name, self._counted(), len(self._entries), self._bytes, pins=self._pins
            )

    def _lookup(self, keys: Sequence[bytes], deadline: float, found: list[Held | None]) -> None:
        with self._lock:
            for index, key in enumerate(keys):
                entry = self._entries.get(key)
                found[index] = None if entry is None else self._held(entry)

    def _load(self, wants: Sequence[Want], deadline: float, found: list[Held | None]) -> None:
        for index, want in enumerate(wants):
            if time.monotonic() >= deadline:
                raise Late(f"{len(wants) - index} of {len(wants)} values were not copied in time")
            with self._lock:
                entry = self._entries.get(want.key)
                if entry is None:
                    continue
                self._pin(entry)
            try:
                self._copy(entry, want)
                found[index] = self._held(entry)
            except (Damaged, Foreign, WrongSize) as error:
                self._failed(error)
                if not isinstance(error, WrongSize):
                    self._discard([want.key])
            finally:
                with self._lock:
                    entry.uses += 1
                    self._unpin(entry)

    def _copy(self, entry: _Entry, want: Want) -> None:
        value = entry.value
        if len(want.into) != value.nbytes:
            raise WrongSize(
                f"a buffer of {len(want.into)} bytes was given for a value of {value.nbytes}"
            )
        # Through numpy, which lets other threads run meanwhile. What arrived is what is checked.
        np.copyto(np.frombuffer(want.into, np.uint8), np.frombuffer(value.payload, np.uint8))
        label = Label.whole(value.kind, value.position, value.nbytes)
        check(want.key, label, entry.header, want.into)

    def _offer(self, values: Sequence[Value]) -> str:
        with self._lock:
            fresh = {value.key: value for value in values if value.key not in self._entries}
            need = Counter[str]()
            for value in fresh.values():
                need[value.tenant] += value.nbytes + HEADER_BYTES
            if (
                need.total() > self.budget_bytes
                or max(need.values(), default=0) > self.tenant_bytes
            ):
                return "too large"
            entries = [self._enter(value) for value in values]
            for tenant in need:
                self._make_room(tenant)
            self._make_room(None)
            fits = self._bytes <= self.budget_bytes and all(
                self._tenants[tenant] <= self.tenant_bytes for tenant in need
            )
            for entry in entries:
                self._unpin(entry)
            if not fits:
                for key in fresh:
                    self._remove(key)
                return "in use"
        self._count("stored", len(fresh))
        self._count("stored_bytes", sum(value.nbytes for value in fresh.values()))
        return ""

    def _enter(self, value: Value) -> _Entry:
        """The entry of a value, new or not, pinned."""
        entry = self._entries.get(value.key)
        if entry is None:
            label = Label.whole(value.kind, value.position, value.nbytes)
            entry = _Entry(value, seal(value.key, label, value.checksum))
            self._entries[value.key] = entry
            self._bytes += entry.nbytes
            self._tenants[value.tenant] += entry.nbytes
            if value.parent is not None:
                self._children[value.parent] += 1
                self._settle(value.parent)
        else:
            entry.uses += 1
        self._pin(entry)
        if value.session:
            self._supersede(value)
        return entry

    def _supersede(self, value: Value) -> None:
        session = (value.tenant, value.session)
        older = self._entries.get(self._newest.get(session, b""))
        self._newest[session] = value.key
        self._entries[value.key].superseded = False
        if older is not None and older.value.key != value.key:
            older.superseded = True
            self._settle(older.value.key)

    def _make_room(self, tenant: str | None) -> None:
        """Evict, of one tenant or of all, until the limit holds or nothing may go."""
        while (
            self._bytes > self.budget_bytes
            if tenant is None
            else self._tenants[tenant] > self.tenant_bytes
        ):
            key = self._order.pop(tenant)
            if key is None:
                return
            self._remove(key)
            self._count("evicted", 1)

    def _settle(self, key: bytes) -> None:
        """Whether a value may be evicted now, and how soon."""
        entry = self._entries.get(key)
        if entry is None or entry.pins or self._children[key]:
            self._order.remove(key)
            return
        value = entry.value
        worth = entry.uses * value.seconds / entry.nbytes
        self._order.put(key, value.tenant, worth, superseded=entry.superseded)

    def _pin(self, entry: _Entry) -> None:
        entry.pins += 1
        self._pins += 1
        self._order.remove(entry.value.key)

    def _unpin(self, entry: _Entry) -> None:
        entry.pins -= 1
        self._pins -= 1
        if self._entries.get(entry.value.key) is entry:
            self._settle(entry.value.key)

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key)
        value = entry.value
        self._order.remove(key)
        self._bytes -= entry.nbytes
        self._tenants[value.tenant] -= entry.nbytes
        if not self._tenants[value.tenant]:
            del self._tenants[value.tenant]
        session = (value.tenant, value.session)
        if self._newest.get(session) == key:
            del self._newest[session]
        if value.parent is not None:
            self._children[value.parent] -= 1
            if not self._children[value.parent]:
                del self._children[value.parent]
            self._settle(value.parent)

    def _discard(self, keys: Sequence[bytes]) -> None:
        with self._lock:
            for key in keys:
                if key in self._entries:
                    self._remove(key)

    def _clear(self) -> None:
        with self._lock:
            for key in list(self._entries):
                self._remove(key)

    def _held(self, entry: _Entry) -> Held:
        value = entry.value
        return Held(value.key, value.kind, value.position, value.nbytes, value.seconds, self.name)
