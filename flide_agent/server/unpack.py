"""Packed bodies, unpacked under a bound."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

_WINDOW_LOG = 23
"""Of the memory that a packed body may make its reader hold: 8 MiB, as RFC 9659 has it."""


class TooLong(Exception):
    """It unpacks to more than the bound."""


class Damaged(Exception):
    """It is not what it says it is."""


class _Stream(Protocol):
    """One packed stream; a body may be several, one after the other."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _gzip() -> _Stream:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _zstd() -> _Stream:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


_STREAMS: dict[str, Callable[[], _Stream]] = {"gzip": _gzip, "zstd": _zstd}

ENCODINGS = tuple(_STREAMS)


def unpack(data: bytes, encoding: str, limit: int) -> bytes:
    """Unpack a body, holding no more than the bound and one byte.

    Args:
        data: the body.
        encoding: one of `ENCODINGS`.
        limit: bytes that it may unpack to.

    Raises:
        TooLong: there is more in it.
        Damaged: it cannot be unpacked.
    """
    body = bytearray()
    while data:
        if encoding == "zstd":
            _check_declared(data, limit - len(body))
        stream = _STREAMS[encoding]()
        try:
            # One byte more than allowed tells that there is more.
            body += stream.decompress(data, limit + 1 - len(body))
        except (zlib.error, zstd.ZstdError) as error:
            raise Damaged(str(error)) from None
        if len(body) > limit:
            raise TooLong
        if not stream.eof:
            raise Damaged("it breaks off")
        data = stream.unused_data
    return bytes(body)


def _check_declared(data: bytes, left: int) -> None:
    """Refuse at once what says itself that it is too long."""
    try:
        declared = zstd.get_frame_info(data).decompressed_size
    except zstd.ZstdError as error:
        raise Damaged(str(error)) from None
    if declared is not None and declared > left:
        raise TooLong
