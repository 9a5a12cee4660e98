"""A value in a remote tier: a manifest, written last and read first, and parts, named here."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from flide_cache.codec import HEADER_BYTES, Kind, Label, join, open_small
from flide_cache.errors import Damaged
from flide_cache.plain import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flide_cache.base import Value

PART_BYTES = 1_048_512
"""Of a part, header included: a power of two and a little would waste a quarter of the memory."""

PAYLOAD_BYTES = PART_BYTES - HEADER_BYTES

WINDOW_BYTES = 8 << 20
"""Of parts asked for at one time: a server holds its replies in memory until they are read."""

WINDOW_ITEMS = 256
"""Of small things asked for at one time."""

T = TypeVar("T")

_SPACE = re.compile(r"[A-Za-z0-9_.-]+")
_FORMAT = 1
_LIMIT = 256


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a value is.

    Attributes:
        kind, position, seconds, checksum: as in `Value`.
        nbytes: of the value.
    """

    kind: Kind
    position: int
    nbytes: int
    seconds: float
    checksum: bytes

    @classmethod
    def of(cls, value: Value) -> Manifest:
        """The manifest of a value."""
        return cls(value.kind, value.position, value.nbytes, value.seconds, value.checksum)

    def pack(self, key: bytes) -> bytes:
        """As stored: a header, then a msgpack array."""
        said = [int(self.kind), self.position, self.nbytes, self.seconds, self.checksum]
        payload = pack([_FORMAT, *said])
        return join(key, Label.whole(Kind.MANIFEST, 0, len(payload)), payload)

    @classmethod
    def unpack(cls, key: bytes, blob: bytes) -> Manifest:
        """Read what `pack` wrote.

        Raises:
            Foreign, Damaged: as `codec.check`; nothing is parsed before that.
        """
        match unpack(open_small(key, Kind.MANIFEST, blob, _LIMIT)):
            case [int(form), int(kind), int(place), int(nbytes), float(seconds), bytes(checksum)]:
                if form == _FORMAT and kind in (Kind.PAGES, Kind.STATE) and nbytes > 0:
                    return cls(Kind(kind), place, nbytes, seconds, checksum)
        raise Damaged("a manifest does not hold what one holds")


class Piece(NamedTuple):
    """A part of a value: its name, what its header says, and where in the value it lies."""

    name: str
    label: Label
    place: slice


class Names:
    """What things are called in a remote tier.

    A name does not give its key away, and with that not what binds bytes to the key. Parts are
    named by the value's checksum too: of two replicas that computed other bits for one key, a
    reader gets the parts of one.

    Args:
        space: what all names begin with.

    Raises:
        ValueError: it has other signs than letters, digits, '_', '.' and '-'.
    """

    def __init__(self, space: str) -> None:
        if not _SPACE.fullmatch(space):
            raise ValueError(
                f"the space {space!r} was given, and a space is letters, digits, '_', '.' and '-': "
                "leave out the others."
            )
        self.manifests = f"{space}:m:"
        self.parts = f"{space}:p:"
        self.records = f"{space}:r:"

    def manifest(self, key: bytes) -> str:
        """Of a value's manifest."""
        return self.manifests + _name(key)

    def record(self, key: bytes) -> str:
        """Of a session's record."""
        return self.records + _name(key)

    def pieces(self, key: bytes, manifest: Manifest) -> list[Piece]:
        """A value's parts: all are full but the last."""
        stem = f"{self.parts}{_name(key)}:{manifest.checksum.hex()}"
        count = -(-manifest.nbytes // PAYLOAD_BYTES)
        pieces = []
        for index in range(count):
            start = index * PAYLOAD_BYTES
            end = min(start + PAYLOAD_BYTES, manifest.nbytes)
            label = Label(
                manifest.kind, manifest.position, end - start, index, count, manifest.nbytes
            )
            pieces.append(Piece(f"{stem}:{index}", label, slice(start, end)))
        return pieces


def windows(items: Iterable[T], nbytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Items in windows of at most `WINDOW_BYTES` and `WINDOW_ITEMS`."""
    window: list[T] = []
    total = 0
    for item in items:
        if window and (total + nbytes(item) > WINDOW_BYTES or len(window) == WINDOW_ITEMS):
            yield window
            window, total = [], 0
        window.append(item)
        total += nbytes(item)
    if window:
        yield window


def _name(key: bytes) -> str:
    return hashlib.blake2b(key, digest_size=16, person=b"flide name").hexdigest()
