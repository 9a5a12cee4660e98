"""Plain data as msgpack: for manifests and session records, never for tensors or objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flide_cache.errors import Damaged

if TYPE_CHECKING:
    from flide_cache.codec import Buffer

try:
    import msgpack
except ImportError as error:
    raise ImportError(
        "flide_cache needs msgpack here, which is not installed: run pip install "
        "'flide-agent[redis]'."
    ) from error


def pack(data: Any) -> bytes:
    """Plain data (None, truths, numbers, text, bytes, lists, dicts with text keys) as bytes.

    Raises:
        TypeError, ValueError, OverflowError: it is anything else, or a number of more than 64 bits.
    """
    packed: bytes = msgpack.packb(data)
    msgpack.unpackb(packed, max_ext_len=0)  # what could not be read again is not written
    return packed


def unpack(payload: Buffer) -> Any:
    """What `pack` wrote. Nothing that claims to be longer than the payload is made.

    Raises:
        Damaged: it is no such thing, or more than one.
    """
    try:
        return msgpack.unpackb(payload, max_ext_len=0)
    except ValueError as error:
        raise Damaged(f"a document of {len(payload)} bytes cannot be read: {error}") from error
