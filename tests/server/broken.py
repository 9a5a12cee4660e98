"""Bodies that are broken in every way that a sender of HTTP can think of."""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.server.test_fuzz import FORMS, ODDITIES, places

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

MEGABYTE = 1 << 20


class Sent(NamedTuple):
    """What goes to a server.

    Attributes:
        method, path, headers, data: of a request.
        raw: instead of them, what is written to the socket; None for a request.
        pieces: whether the body comes in chunks of unsaid length.
    """

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    data: bytes
    raw: bytes | None = None
    pieces: bool = False


class Broken:
    """Makes one thing after the other.

    Args:
        whim: where chance comes from.
    """

    def __init__(self, whim: random.Random) -> None:
        self._whim = whim
        self._ways: tuple[Callable[[bytes], bytes], ...] = (
            self._noise,
            self._cut,
            self._changed,
            self._nested,
            self._long,
            self._other_unicode,
            self._numbers,
            self._twice,
            self._other_fields,
        )

    def one(self) -> Sent:
        """Anything."""
        whim = self._whim
        if whim.random() < 0.05:
            return Sent("", "", [], b"", raw=self._hardly_http())
        path, form = whim.choice(FORMS)
        data = whim.choice(self._ways)(json.dumps(form).encode())
        headers = [(b"content-type", whim.choice([b"application/json", b"text/plain", b"\xe9;"]))]
        if whim.random() < 0.25:
            encoding, data = self._packed(data)
            headers.append((b"content-encoding", encoding))
        method = "POST" if whim.random() < 0.95 else whim.choice(["PUT", "PATCH", "TRACE", "XYZ"])
        return Sent(method, path, headers, data, pieces=whim.random() < 0.1)

    def _hardly_http(self) -> bytes:
        odd = self._whim.choice(ODDITIES)
        return odd if self._whim.random() < 0.5 else self._changed(odd[:2_000])

    def _noise(self, data: bytes) -> bytes:
        return self._whim.randbytes(self._whim.randrange(3_000))

    def _cut(self, data: bytes) -> bytes:
        return data[: self._whim.randrange(len(data))]

    def _changed(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._whim.randint(1, 6)):
            changed[self._whim.randrange(len(changed))] = self._whim.randrange(256)
        return bytes(changed)

    def _nested(self, data: bytes) -> bytes:
        deep = self._whim.choice([50, 900, 5_000, 200_000])
        opening, closing = self._whim.choice([(b"[", b"]"), (b'{"state":', b"}")])
        return opening * deep + self._whim.choice([b"", b"1" + closing * deep])

    def _long(self, data: bytes) -> bytes:
        length = self._whim.choice([100_000, MEGABYTE, 9 * MEGABYTE])
        filling = self._whim.choice([b" ", "ü".encode(), b"[],", b"\\u0000", b"7"])
        text = (filling * (length // len(filling)))[:length]
        return self._whim.choice([text, data + text, b'{"state": "' + text + b'"}'])

    def _other_unicode(self, data: bytes) -> bytes:
        odd = self._whim.choice(["\ud800", "a\udfff\ud800", "\x00", "\ufeffx", "\u202e\U0010ffff"])
        text = data.decode().replace("build", odd).replace('"state"', '"' + odd + '"', 1)
        if self._whim.random() < 0.2:
            return text.encode("latin-1", "replace")
        return text.encode(self._whim.choice(["utf-8", "utf-16", "utf-32"]), "surrogatepass")

    def _numbers(self, data: bytes) -> bytes:
        odd = self._whim.choice([b"NaN", b"-Infinity", b"1e999", b"9" * 5_000, b"-0.0", b"01"])
        return self._whim.choice([odd, b'{"state": ' + odd + b"}", data[:-1] + b', "x":' + odd])

    def _twice(self, data: bytes) -> bytes:
        return self._whim.choice([data + data, data[:-1] + b"," + data[1:], b"\n" * 99 + data])

    def _other_fields(self, data: bytes) -> bytes:
        form = json.loads(data)
        *way, last = self._whim.choice(places(form)[1:])
        inside = form
        for step in way:
            inside = inside[step]
        values: list[Any] = [None, True, -1, 1e308, "", "x" * 300, [], {}, [[None]], {"": {}}]
        inside[last] = self._whim.choice(values)
        return json.dumps(form).encode()

    def _packed(self, data: bytes) -> tuple[bytes, bytes]:
        bomb = b" " * (12 * MEGABYTE)
        match self._whim.randrange(7):
            case 0:
                return b"gzip", gzip.compress(data, 1)
            case 1:
                return b"zstd", zstd.compress(data)
            case 2:
                return b"gzip", gzip.compress(bomb, 1)
            case 3:
                return b"zstd", zstd.compress(bomb)
            case 4:
                return b"gzip", gzip.compress(data, 1)[: -self._whim.randint(1, 20)]
            case 5:
                return b"zstd", self._changed(zstd.compress(data))
            case _:
                return self._whim.choice([b"br", b"gzip, gzip", b"zstd", b"\xff"]), data
