"""The contract of a checkpoint store: few verbs, in which nothing fails for the caller.

A store keeps *values*: immutable bytes by key. A miss is None. Inside, what goes wrong raises a
`StoreError`, and one place, `Careful._failed`, counts it and lets it be a miss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from flide_cache.careful import Careful
from flide_cache.codec import Kind, digest, octets
from flide_cache.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self


@dataclass(slots=True, eq=False)
class Value:
    """Something to keep.

    Attributes:
        key: 32 bytes, from `Namespace.key`.
        payload: its bytes, contiguous. They are given away: who offers a value must not write to
            them any more. If it does, the value is found damaged, and is a miss.
        kind: pages or state.
        position: tokens from the start of the history to its end.
        seconds: of computing that holding it saves by itself. Pages that only serve states save
            none: they are kept for the states after them.
        tenant: whose quota it counts against.
        session: whose newest state this is; a newer one of the same tenant and session supersedes
            it. Empty for what lasts: pages, and states where histories begin or part.
        parent: the key of the pages before it. What is a parent is not evicted before its children.
        checksum: of the payload when it was offered.
    """

    key: bytes
    payload: memoryview
    kind: Kind
    position: int
    seconds: float = 0.0
    tenant: str = ""
    session: str = ""
    parent: bytes | None = None
    checksum: bytes = field(init=False)

    def __post_init__(self) -> None:
        check_key(self.key)
        self.payload = octets(self.payload)
        if not len(self.payload):
            raise ValueError("a value of no bytes was given: there is nothing to keep.")
        if not 0 <= self.position < 1 << 32 or not 0 <= self.seconds < math.inf:
            raise ValueError(
                f"a value at position {self.position!r} that saves {self.seconds!r} s was given: "
                "both are finite and not negative."
            )
        self.position, self.seconds = int(self.position), float(self.seconds)
        self.checksum = digest(self.payload)

    @property
    def nbytes(self) -> int:
        """Of its payload."""
        return len(self.payload)


@dataclass(frozen=True, slots=True)
class Held:
    """What a store says about a value it holds.

    Attributes:
        key, kind, position, nbytes, seconds: as in `Value`.
        tier: the name of the store that holds it.
    """

    key: bytes
    kind: Kind
    position: int
    nbytes: int
    seconds: float
    tier: str


@dataclass(slots=True, eq=False)
class Want:
    """A value to load, and where to.

    Attributes:
        key: 32 bytes.
        into: writable, contiguous, of the value's size. It holds the value's bytes if the load
            gives a `Held`, and anything if it gives None.
        tenant, parent: as in `Value`, for the copy that a faster tier keeps.
    """

    key: bytes
    into: memoryview
    tenant: str = ""
    parent: bytes | None = None

    def __post_init__(self) -> None:
        check_key(self.key)
        self.into = octets(self.into)
        if self.into.readonly:
            raise ValueError("a buffer to load into was given that cannot be written to.")


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store did and holds.

    Attributes:
        name: of the store.
        counts: "hits", "misses", "loaded_bytes", "stored", "stored_bytes", "evicted", and
            "dropped:<why>" and "failed:<kind>".
        entries, bytes: what it holds; 0 where only the server knows.
        queued_bytes: accepted and not yet written.
        pins: values being copied out at this moment.
        paused_seconds: how long reads or writes stay switched off; 0 when both work.
        tiers: of the stores it is made of.
    """

    name: str
    counts: Mapping[str, int]
    entries: int = 0
    bytes: int = 0
    queued_bytes: int = 0
    pins: int = 0
    paused_seconds: float = 0.0
    tiers: tuple[Stats, ...] = ()


class CheckpointStore(Careful, ABC):
    """Values by key. Safe to use from several threads.

    No method raises for anything that happens to the store; `ValueError` and `TypeError` are for
    arguments that are wrong. Deadlines are in the time of `time.monotonic`.
    """

    def allocate(self, nbytes: int) -> memoryview:
        """A buffer to fill and offer, where the store likes its values to lie."""
        return octets(np.empty(nbytes, np.uint8).data)

    def lookup(self, keys: Sequence[bytes], deadline: float = math.inf) -> list[Held | None]:
        """Which of these values are held. No bytes move, nothing is reserved, and it is a hint: a
        value may be gone when it is loaded."""
        found: list[Held | None] = [None] * len(keys)
        wanted = [check_key(key) for key in keys]
        self._attempt(lambda: self._lookup(wanted, deadline, found))
        return found

    def load(self, wants: Sequence[Want], deadline: float = math.inf) -> list[Held | None]:
        """Copy values into the callers' buffers, each verified; None for every one that is missing,
        damaged or late."""
        found: list[Held | None] = [None] * len(wants)
        self._attempt(lambda: self._load(wants, deadline, found))
        hits = [held for held in found if held is not None]
        self._count("hits", len(hits))
        self._count("misses", len(found) - len(hits))
        self._count("loaded_bytes", sum(held.nbytes for held in hits))
        return found

    def offer(self, values: Sequence[Value]) -> bool:
        """Take values that belong together, parents first: all of them, or none and False.

        Never waits for a disk or a network. What was taken may still be lost later: then it is a
        miss.
        """
        refusals: list[str] = []
        if values and not self._attempt(lambda: refusals.append(self._offer(values))):
            refusals = ["failed"]
        if any(refusals):
            self._count(f"dropped:{refusals[0]}", len(values))
            return False
        return True

    def flush(self, deadline: float = math.inf) -> bool:
        """Wait until everything taken is stored or dropped; False if the deadline came first."""
        return self._flush(deadline)

    def discard(self, keys: Sequence[bytes]) -> None:
        """Forget values: at once, or, where a network lies between, soon (`flush` waits for it)."""
        wanted = [check_key(key) for key in keys]
        self._attempt(lambda: self._discard(wanted))

    def clear(self) -> bool:
        """Forget everything that this store put there, and nothing else; False if that failed."""
        return self._attempt(self._clear)

    @abstractmethod
    def stats(self) -> Stats:
        """What it did and holds."""

    def close(self) -> None:
        """End it. What is queued may be lost: `flush` first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abstractmethod
    def _lookup(self, keys: Sequence[bytes], deadline: float, found: list[Held | None]) -> None:
        """Fill in what is held; may raise when only a part is filled in."""

    @abstractmethod
    def _load(self, wants: Sequence[Want], deadline: float, found: list[Held | None]) -> None:
        """Fill in what was loaded; may raise when only a part is filled in."""

    @abstractmethod
    def _offer(self, values: Sequence[Value]) -> str:
        """Take all values, or say in a word why not."""

    def _flush(self, deadline: float) -> bool:
        return True

    @abstractmethod
    def _discard(self, keys: Sequence[bytes]) -> None: ...

    @abstractmethod
    def _clear(self) -> None: ...
