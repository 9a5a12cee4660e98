"""However many broken bodies come, the server's memory stays what it was.

`make soak` sends ten thousand.
"""

from __future__ import annotations

import os
import random
import socket
from collections import Counter
from typing import TYPE_CHECKING

import httpx
import psutil

from tests.server.broken import MEGABYTE, Broken, Sent
from tests.server.conftest import body
from tests.server.crowd import figures
from tests.server.test_fuzz import check, check_written
from tests.server.test_serve import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BODIES = int(os.environ.get("FLIDE_SOAK_BODIES", "300"))
GROWTH = 48 * MEGABYTE
"""Of the allocator, whose arenas may be more or less full."""


class Sender:
    """Sends, and checks what comes back.

    Attributes:
        statuses: of the replies.
    """

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._broken = Broken(random.Random())
        self.statuses: Counter[int] = Counter()

    def send(self, count: int) -> None:
        """So many."""
        for _ in range(count):
            sent = self._broken.one()
            if sent.raw is None:
                self._request(sent)
            else:
                self._write(sent.raw)

    def _request(self, sent: Sent) -> None:
        content = _pieces(sent.data) if sent.pieces else sent.data
        response = self._http.request(sent.method, sent.path, headers=sent.headers, content=content)
        self.statuses[response.status_code] += 1
        check(response)

    def _write(self, raw: bytes) -> None:
        url = self._http.base_url
        with socket.create_connection((url.host, url.port or 80), timeout=5) as wire:
            wire.settimeout(0.05)
            try:
                wire.sendall(raw)
                reply = wire.recv(65_536)
            except OSError:
                reply = b""
        check_written(reply)


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), 65_536):
        yield data[start : start + 65_536]


def test_broken_bodies(directory: Path) -> None:
    """Never a 5xx, never another shape, nothing kept; and what is in order is answered."""
    with (
        Process("--model", directory) as served,
        httpx.Client(base_url=served.url, timeout=30) as http,
    ):
        process = psutil.Process(served.process.pid)
        sender = Sender(http)
        sender.send(BODIES // 2)
        before = process.memory_info().rss
        sender.send(BODIES)
        after = process.memory_info().rss

        assert after - before < GROWTH, (before, after)
        assert {405, 413, 415, 422} <= sender.statuses.keys()
        assert figures(served.url)["flide_requests_in_hand"] == 0
        assert http.post("/v1/systemone", json=body()).status_code == 200
        assert served.end()[0] == 0
