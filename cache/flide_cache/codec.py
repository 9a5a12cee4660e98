"""How a part lies in storage: a header of 64 bytes, then the raw bytes.

    offset  size  field
         0     4  magic
         4     1  format version
         5     1  kind
         6     2  which part of the value this is
         8     4  how many parts the value has
        12     4  position: tokens from the start of the history to the value's end
        16     8  bytes of this part, header not counted
        24     8  bytes of the whole value
        32    16  checksum: XXH3-128 over the fields above, the binding and the payload's XXH3-128
        48    16  binding: BLAKE2b over kind and part, keyed by the value's key

The binding ties a part to its key: what was written under another one is told apart whatever its
name says. The checksum covers every byte, header included.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from flide_cache.errors import Damaged, Foreign

if TYPE_CHECKING:
    from typing import TypeAlias

    Buffer: TypeAlias = bytes | bytearray | memoryview

try:
    import xxhash
except ImportError as error:
    raise ImportError(
        "flide_cache needs xxhash, which is not installed: run pip install 'flide-agent[redis]'."
    ) from error

VERSION = 1
KEY_BYTES = 32
HEADER_BYTES = 64
_MAGIC = b"FLDC"
_FIELDS = struct.Struct("<4sBBHIIQQ")
_HEADER = struct.Struct("<32s16s16s")
_PLACE = struct.Struct("<BH")


class Kind(IntEnum):
    """What a value is."""

    MANIFEST = 0
    """What a remote tier keeps about a value cut into parts."""
    PAGES = 1
    """Keys and values of a stretch of tokens."""
    STATE = 2
    """Recurrent states and windows at one position."""
    RECORD = 3
    """A small document about a session."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a part's header says besides checksum and binding.

    Attributes:
        kind: of the value.
        position: tokens from the start of the history to the value's end.
        nbytes: of this part.
        index, count: which part of how many.
        total: bytes of the whole value.
    """

    kind: Kind
    position: int
    nbytes: int
    index: int
    count: int
    total: int

    @classmethod
    def whole(cls, kind: Kind, position: int, nbytes: int) -> Label:
        """The label of a value in one part."""
        return cls(kind, position, nbytes, 0, 1, nbytes)

    def pack(self) -> bytes:
        """The first half of a header."""
        return _FIELDS.pack(
            _MAGIC,
            VERSION,
            self.kind,
            self.index,
            self.count,
            self.position,
            self.nbytes,
            self.total,
        )


def octets(buffer: Buffer) -> memoryview:
    """A buffer as flat bytes, without a copy; of a numpy array give its `data`.

    Raises:
        TypeError: when it is not contiguous.
    """
    return memoryview(buffer).cast("B")


def digest(payload: Buffer) -> bytes:
    """16 bytes that change when the payload does: fast, but no defence against a forger."""
    return xxhash.xxh3_128_digest(payload)


def seal(key: bytes, label: Label, payload_digest: bytes) -> bytes:
    """The header of a part whose payload has this digest."""
    fields = label.pack()
    binding = _binding(key, label)
    return _HEADER.pack(fields, digest(fields + binding + payload_digest), binding)


def check(key: bytes, label: Label, header: Buffer, payload: Buffer) -> None:
    """Hold a part against the key and the place it was asked for.

    Raises:
        Foreign: it was written for another key or place.
        Damaged: it is not what was written.
    """
    if len(header) != HEADER_BYTES:
        raise Damaged(f"a part has {len(header)} bytes, less than a header's {HEADER_BYTES}")
    fields, checksum, binding = _HEADER.unpack(header)
    magic, version = fields[:4], fields[4]
    if magic != _MAGIC or version != VERSION:
        raise Damaged(f"a part begins with {magic!r}, version {version}, not this format's")
    if binding != _binding(key, label) or fields != label.pack():
        raise Foreign(f"a part was not written as part {label.index} of the value asked for")
    if len(payload) != label.nbytes:
        raise Damaged(f"a part has {len(payload)} bytes where {label.nbytes} were written")
    if checksum != digest(fields + binding + digest(payload)):
        raise Damaged(f"the checksum of a part of {label.nbytes} bytes does not hold")


def join(key: bytes, label: Label, payload: Buffer) -> bytes:
    """A part as one string of bytes."""
    return b"".join((seal(key, label, digest(payload)), octets(payload)))


def split(blob: bytes) -> tuple[memoryview, memoryview]:
    """Header and payload of a part, unchecked, without a copy."""
    view = memoryview(blob)
    return view[:HEADER_BYTES], view[HEADER_BYTES:]


def open_part(key: bytes, label: Label, blob: bytes) -> memoryview:
    """The payload of a part, checked, without a copy; errors as in `check`."""
    header, payload = split(blob)
    check(key, label, header, payload)
    return payload


def open_small(key: bytes, kind: Kind, blob: bytes, limit: int) -> memoryview:
    """The payload of a value in one part whose size is not known before; errors as in `check`.

    Raises:
        Damaged: also when it is longer than `limit`.
    """
    header, payload = split(blob)
    if len(payload) > limit:
        raise Damaged(f"a value has {len(payload)} bytes where at most {limit} are written")
    check(key, Label.whole(kind, 0, len(payload)), header, payload)
    return payload


def _binding(key: bytes, label: Label) -> bytes:
    place = _PLACE.pack(label.kind, label.index)
    return hashlib.blake2b(place, key=key, digest_size=16, person=b"flide binding").digest()
