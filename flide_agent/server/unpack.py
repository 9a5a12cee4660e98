"""Packed bodies, unpacked piece by piece under a bound."""

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

ENCODINGS = ("gzip", "zstd")

_GZIP = zlib.MAX_WBITS | 16
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
    def take(self, data: bytes, most: int) -> bytes: ...
    @property
    def hungry(self) -> bool: ...


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_GZIP)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def hungry(self) -> bool:
        return not self._inner.unconsumed_tail

    def take(self, data: bytes, most: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, most)


class _Zstd:
    def __init__(self) -> None:
        options = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        self._inner = zstd.ZstdDecompressor(options=options)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def hungry(self) -> bool:
        return self._inner.needs_input

    def take(self, data: bytes, most: int) -> bytes:
        return self._inner.decompress(data, most)


_STREAMS: dict[str, Callable[[], _Stream]] = {"gzip": _Gzip, "zstd": _Zstd}


class Unpacker:
    """Unpacks a body as it comes in; never holds more than the bound and one byte.

    Args:
        encoding: one of `ENCODINGS`.
        limit: bytes that it may unpack to.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        self._make = _STREAMS[encoding]
        self._stream = self._make()
        self._limit = limit
        self._body = bytearray()
        self._begun = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            TooLong: there is more in it than the bound allows.
            Damaged: it cannot be unpacked.
        """
        while data or not self._stream.hungry:
            if self._stream.eof:
                data, self._stream = self._stream.unused_data + data, self._make()
                self._begun = False
                if not data:
                    return
            self._begun = True
            data = self._step(data)

    def finish(self) -> bytes:
        """The whole body.

        Raises:
            Damaged: it breaks off.
        """
        if self._begun and not self._stream.eof:
            raise Damaged("it breaks off")
        return bytes(self._body)

    def _step(self, data: bytes) -> bytes:
        most = self._limit + 1 - len(self._body)
        try:
            self._body += self._stream.take(data, most)
        except (zlib.error, zstd.ZstdError) as error:
            raise Damaged(str(error)) from None
        if len(self._body) > self._limit:
            raise TooLong
        return b""
