"""Values in a Redis server, cut into parts and shared by all replicas."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from flide_cache.base import CheckpointStore, Held, Stats
from flide_cache.behind import Job, WriteBehind
from flide_cache.codec import digest, join, open_part
from flide_cache.errors import Damaged, Foreign, Late, Missing, WrongSize
from flide_cache.manifest import Manifest, Names, Piece, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from flide_cache.base import Value, Want
    from flide_cache.link import Command, RedisLink

_SMALL_JOB_BYTES = 256


@dataclass(slots=True, eq=False)
class _Arrival:
    """A value on its way.

    Attributes:
        index: of `want` among those asked for.
        pieces: that are not there yet.
        ageing: less than half of its time to live is left.
        lost: it will not arrive.
    """

    index: int
    want: Want
    manifest: Manifest
    pieces: list[Piece]
    ageing: bool
    lost: bool = False


class RedisStore(CheckpointStore):
    """Values in Redis: parts of just under a megabyte, and a manifest that is written last.

    A manifest proves nothing: parts may have been evicted. A value arrives whole or not at all.

    Args:
        link: the server; who made it closes it, after this.
        space: what all names begin with. `clear` removes values of this space and nothing else.
        ttl_seconds: how long a value lives after it was written, or read in the second half of it.
        queue_bytes: what may wait to be written.
        drain_seconds: how long `close` goes on writing what is queued.
        name: of the tier.

    Raises:
        ValueError: the space has other signs than letters, digits, '_', '.' and '-'.
    """

    def __init__(
        self,
        link: RedisLink,
        *,
        space: str = "fc1",
        ttl_seconds: int = 3_600,
        queue_bytes: int = 256 << 20,
        drain_seconds: float = 5.0,
        name: str = "redis",
    ) -> None:
        super().__init__(name)
        self._reads, self._writes = link.reads, link.writes
        self._link = link
        self._names = Names(space)
        self._ttl = ttl_seconds
        self._drain_seconds = drain_seconds
        breaker = link.writes.breaker
        self._queue = WriteBehind(queue_bytes, lambda: breaker.remaining, f"flide-{name}")

    def stats(self) -> Stats:
        """What it did; how much it holds only the server knows."""
        paused = max(self._reads.breaker.remaining, self._writes.breaker.remaining)
        queued = self._queue.queued_bytes
        return Stats(self.name, self._counted(), queued_bytes=queued, paused_seconds=paused)

    def close(self) -> None:
        """Write what is queued, for some seconds, and end."""
        self.flush(time.monotonic() + self._drain_seconds)
        self._count("dropped:closed", self._queue.close())

    def _lookup(self, keys: Sequence[bytes], deadline: float, found: list[Held | None]) -> None:
        for some in windows(range(len(keys)), _no_bytes):
            commands: list[Command] = [("GET", self._names.manifest(keys[i])) for i in some]
            replies = self._reads.run(commands, deadline=deadline)
            for index, blob in zip(some, replies, strict=True):
                manifest = self._manifest(keys[index], blob)
                if manifest is not None:
                    found[index] = self._held(keys[index], manifest)

    def _load(self, wants: Sequence[Want], deadline: float, found: list[Held | None]) -> None:
        arrivals = self._arrivals(wants, deadline)
        pieces = [(arrival, piece) for arrival in arrivals for piece in arrival.pieces]
        for window in windows(pieces, lambda item: item[1].label.nbytes):
            wanted = [(arrival, piece) for arrival, piece in window if not arrival.lost]
            if wanted:
                self._fetch(wanted, deadline)
            for arrival, _ in wanted:
                if not arrival.pieces:
                    found[arrival.index] = self._held(arrival.want.key, arrival.manifest)
        for arrival in arrivals:
            if arrival.ageing and not arrival.pieces:
                key = arrival.want.key
                self._soon(("refresh", key), partial(self._refresh, key, arrival.manifest))

    def _arrivals(self, wants: Sequence[Want], deadline: float) -> list[_Arrival]:
        """What the manifests of values promise."""
        arrivals = []
        for some in windows(range(len(wants)), _no_bytes):
            names = [self._names.manifest(wants[index].key) for index in some]
            commands: list[Command] = [(verb, name) for name in names for verb in ("GET", "PTTL")]
            replies = self._reads.run(commands, deadline=deadline)
            for index, blob, ttl in zip(some, replies[::2], replies[1::2], strict=True):
                want = wants[index]
                manifest = self._manifest(want.key, blob)
                if manifest is None:
                    continue
                if manifest.nbytes != len(want.into):
                    given = f"a buffer of {len(want.into)} bytes was given"
                    self._failed(WrongSize(f"{given} for a value of {manifest.nbytes}"))
                    continue
                pieces = self._names.pieces(want.key, manifest)
                arrivals.append(_Arrival(index, want, manifest, pieces, ttl < self._ttl * 500))
        return arrivals

    def _fetch(self, wanted: Sequence[tuple[_Arrival, Piece]], deadline: float) -> None:
        """Read one window of parts into the buffers of those who want them."""
        if time.monotonic() >= deadline:
            raise Late("the deadline passed before all parts were read")
        nbytes = sum(piece.label.nbytes for _, piece in wanted)
        commands: list[Command] = [("GET", piece.name) for _, piece in wanted]
        replies = self._reads.run(commands, nbytes=nbytes, deadline=deadline)
        for (arrival, piece), blob in zip(wanted, replies, strict=True):
            try:
                _take(arrival, piece, blob)
            except (Missing, Damaged, Foreign) as error:
                if not arrival.lost:
                    self._reject(arrival.want.key, error)
                arrival.lost = True

    def _manifest(self, key: bytes, blob: bytes | None) -> Manifest | None:
        if blob is None:
            return None
        try:
            return Manifest.unpack(key, blob)
        except (Damaged, Foreign) as error:
            self._reject(key, error)
            return None

    def _reject(self, key: bytes, error: Exception) -> None:
        """What cannot be used is counted, and thrown away when there is time."""
        self._failed(error)
        self._discard([key])

    def _offer(self, values: Sequence[Value]) -> str:
        replaced = self._queue.put([self._job(value) for value in values])
        if replaced is None:
            return "queue full"
        self._count("dropped:superseded", replaced)
        return ""

    def _job(self, value: Value) -> Job:
        def run() -> None:
            if not self._attempt(lambda: self._write(value)):
                self._count("dropped:failed", 1)

        # A newer state of a session takes the place of one that still waits.
        slot = (value.tenant, value.session) if value.session else value.key
        return Job(slot, value.nbytes, run)

    def _write(self, value: Value) -> None:
        """Parts first; the manifest makes them a value."""
        key, name = value.key, self._names.manifest(value.key)
        (blob,) = self._writes.run([("GET", name)])
        with suppress(Damaged, Foreign):  # then it is written anew
            if self._refresh(key, Manifest.unpack(key, blob or b"")):
                return
        if digest(value.payload) != value.checksum:
            raise Damaged(f"a value of {value.nbytes} bytes was written to after it was offered")
        manifest = Manifest.of(value)
        for window in windows(self._names.pieces(key, manifest), lambda piece: piece.label.nbytes):
            commands: list[Command] = [
                (
                    "SET",
                    piece.name,
                    join(key, piece.label, value.payload[piece.place]),
                    *self._expiry,
                )
                for piece in window
            ]
            nbytes = sum(piece.label.nbytes for piece in window)
            self._writes.run(commands, nbytes=nbytes)
        self._writes.run([("SET", name, manifest.pack(key), *self._expiry)])
        self._count("stored", 1)
        self._count("stored_bytes", value.nbytes)

    @property
    def _expiry(self) -> tuple[str, int]:
        return "EX", self._ttl

    def _refresh(self, key: bytes, manifest: Manifest) -> bool:
        """Let a value live on, the parts before the manifest; False if something of it is gone."""
        names = [piece.name for piece in self._names.pieces(key, manifest)]
        whole = True
        for some in windows([*names, self._names.manifest(key)], _no_bytes):
            whole &= all(self._writes.run([("EXPIRE", name, self._ttl) for name in some]))
        return whole

    def _discard(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._soon(("discard", key), partial(self._remove, key))

    def _remove(self, key: bytes) -> None:
        """Remove a value, its manifest first."""
        name = self._names.manifest(key)
        (blob, _) = self._writes.run([("GET", name), ("UNLINK", name)])
        try:
            manifest = Manifest.unpack(key, blob or b"")
        except (Damaged, Foreign):
            return  # nothing says what its parts are called; they will expire
        names = [piece.name for piece in self._names.pieces(key, manifest)]
        for some in windows(names, _no_bytes):
            self._writes.run([("UNLINK", name) for name in some])

    def _clear(self) -> None:
        self._count("dropped:cleared", self._queue.drop())
        for prefix in (self._names.manifests, self._names.parts):
            for names in self._link.names(prefix):
                if names:
                    self._writes.run([("UNLINK", name) for name in names])

    def _flush(self, deadline: float) -> bool:
        return self._queue.flush(deadline)

    def _soon(self, slot: Hashable, call: Callable[[], object]) -> None:
        """Do something small when its turn comes; what has no room in the queue is not done."""
        self._queue.put([Job(slot, _SMALL_JOB_BYTES, lambda: self._attempt(call))])

    def _held(self, key: bytes, manifest: Manifest) -> Held:
        return Held(
            key, manifest.kind, manifest.position, manifest.nbytes, manifest.seconds, self.name
        )


def _take(arrival: _Arrival, piece: Piece, blob: bytes | None) -> None:
    """Copy a part into the buffer that wants it, checked before it gets there."""
    if blob is None:
        raise Missing(f"part {piece.label.index} of {piece.label.count} is gone")
    payload = open_part(arrival.want.key, piece.label, blob)
    into = np.frombuffer(arrival.want.into[piece.place], np.uint8)
    np.copyto(into, np.frombuffer(payload, np.uint8))
    arrival.pieces.remove(piece)


def _no_bytes(item: object) -> int:
    return 0
