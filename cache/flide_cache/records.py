"""Small documents about sessions, that survive a restart: in memory, and in Redis if there is one.

Heads, receipts, bands: what cannot be computed again from the text that the client holds.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from flide_cache.base import Stats
from flide_cache.careful import Careful
from flide_cache.codec import Kind, Label, join, open_small
from flide_cache.errors import Damaged
from flide_cache.keys import Namespace
from flide_cache.manifest import Names
from flide_cache.plain import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_cache.keys import Plain
    from flide_cache.link import RedisLink

_FORMAT = 1


class RecordId(NamedTuple):
    """Whose record it is.

    Attributes:
        tenant, session, model: as the session names them.
        version: of the canonical text.
    """

    tenant: str
    session: str
    model: str
    version: int


class Record(NamedTuple):
    """A document, and how often its session's record was written before and with it."""

    counter: int
    document: Any


class Records(Careful):
    """Documents by session; the last writer wins.

    Nothing is compared before it is written. The counter tells a reader which of two copies is
    newer, and a writer that somebody else wrote: read, count on by one, write.

    Args:
        secret: as `Namespace`.
        link: the Redis server to share them through; None to keep them in memory only. Who made it
            closes it.
        space: as `RedisStore`.
        ttl_seconds: how long a document lives after it was written.
        document_bytes: of the longest document.
        budget_bytes: of all documents in memory.
        clock: the time, in seconds.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        link: RedisLink | None = None,
        space: str = "fc1",
        ttl_seconds: int = 86_400,
        document_bytes: int = 64 << 10,
        budget_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("records")
        self.ttl_seconds = ttl_seconds
        self.document_bytes = document_bytes
        self.budget_bytes = budget_bytes
        self._secret = secret
        self._link = link
        self._names = Names(space)
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, record: RecordId) -> Record | None:
        """The newest copy; waits for Redis no longer than for one small reply."""
        key = self._key(record)
        copies: list[Record] = []
        self._attempt(lambda: self._read(key, copies))
        self._attempt(lambda: self._recall(key, copies))
        self._count("hits" if copies else "misses", 1)
        return max(copies, key=lambda copy: copy.counter, default=None)

    def put(self, record: RecordId, document: Any, counter: int) -> bool:
        """Write a document; False if it is too long, or if not every place has it.

        Raises:
            TypeError, ValueError, OverflowError: it is not plain data (None, truths, numbers, text,
                bytes, lists, dicts with text keys).
        """
        key, payload = self._key(record), pack([_FORMAT, counter, document])
        if len(payload) > self.document_bytes:
            self._count("dropped:too large", 1)
            return False
        blob = join(key, Label.whole(Kind.RECORD, 0, len(payload)), payload)
        self._remember(key, blob)
        self._count("stored", 1)
        command = ("SET", self._names.record(key), blob, "EX", self.ttl_seconds)
        link = self._link
        return link is None or self._attempt(lambda: link.writes.run([command]))

    def delete(self, record: RecordId) -> bool:
        """Forget a document; False if a place may still have it."""
        key = self._key(record)
        with self._lock:
            self._drop(key)
        command = ("UNLINK", self._names.record(key))
        link = self._link
        return link is None or self._attempt(lambda: link.writes.run([command]))

    def stats(self) -> Stats:
        """What it did, and what is in memory."""
        with self._lock:
            return Stats(self.name, self._counted(), entries=len(self._memory), bytes=self._bytes)

    def _key(self, record: RecordId) -> bytes:
        session: dict[str, Plain] = {
            "session": record.session,
            "model": record.model,
            "version": record.version,
        }
        return Namespace(session, record.tenant, self._secret).root

    def _read(self, key: bytes, copies: list[Record]) -> None:
        if self._link is not None:
            (blob,) = self._link.reads.run([("GET", self._names.record(key))])
            if blob is not None:
                copies.append(self._open(key, blob))

    def _recall(self, key: bytes, copies: list[Record]) -> None:
        with self._lock:
            until, blob = self._memory.get(key, (0.0, b""))
            if self._clock() >= until:
                self._drop(key)
                return
        copies.append(self._open(key, blob))

    def _open(self, key: bytes, blob: bytes) -> Record:
        match unpack(open_small(key, Kind.RECORD, blob, self.document_bytes)):
            case [int(form), int(counter), document] if form == _FORMAT:
                return Record(counter, document)
        raise Damaged("a record does not hold what one holds")

    def _remember(self, key: bytes, blob: bytes) -> None:
        """Keep a copy in memory; the ones written longest ago make room."""
        with self._lock:
            self._drop(key)
            self._memory[key] = (self._clock() + self.ttl_seconds, blob)
            self._bytes += len(blob)
            while self._bytes > self.budget_bytes:
                self._drop(next(iter(self._memory)))
                self._count("evicted", 1)

    def _drop(self, key: bytes) -> None:
        _, blob = self._memory.pop(key, (0.0, b""))
        self._bytes -= len(blob)
