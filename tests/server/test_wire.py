"""What a session's client sends at a step does not grow with the history."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from flide_agent import AsyncClient, Client
from tests.cache.proxy import Proxy
from tests.server.conftest import ASKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.conftest import Served

STEPS = 60
DIGITS = 16
"""Bytes by which headers with numbers may differ, such as the milliseconds that are left."""


class Line:
    """A line to a server, on which bytes are counted.

    Attributes:
        url: its near end.
        bytes: that went up and down.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.url = f"http://127.0.0.1:{proxy.port}"
        self.bytes: Counter[str] = Counter()
        proxy.up = self._counting("up")
        proxy.down = self._counting("down")

    def _counting(self, name: str) -> Any:
        def way(chunk: bytes) -> bytes:
            self.bytes[name] += len(chunk)
            return chunk

        return way

    def step(self) -> int:
        """Bytes that went up since the last step."""
        up, self.bytes["up"] = self.bytes["up"], 0
        return up


@pytest.fixture
def line(served: Served) -> Iterator[Line]:
    """A line to the shared server."""
    port = urlsplit(served.url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield Line(proxy)


def message(number: int) -> dict[str, str]:
    """One of many that are equally long, and none like another."""
    return {"role": "user", "content": f"{number:04d} " * 4}


def constant(sizes: list[int]) -> bool:
    """Whether steps are of one size, after one that sets the session up."""
    return max(sizes[1:]) - min(sizes[1:]) <= DIGITS and min(sizes) > 100


def test_by_steps(line: Line) -> None:
    """Appended and asked."""
    sizes = []
    with Client(line.url, timeout=30) as client:
        session = client.session()
        for number in range(STEPS):
            session.append(message(number))
            session.ask(ASKED, state={"tool": "run"})
            sizes.append(line.step())
        assert len(session.text) > 20 * STEPS
    assert len(sizes) == STEPS
    assert constant(sizes), sizes


def test_with_the_whole_history(line: Line) -> None:
    """Given all of it at every step, as frameworks do, the client sends what is new."""
    sizes = []

    async def run() -> None:
        async with AsyncClient(line.url, timeout=30) as client:
            session = client.session()
            for number in range(STEPS):
                await session.ask(ASKED, messages=[message(n) for n in range(number + 1)])
                sizes.append(line.step())

    asyncio.run(run())
    assert len(sizes) == STEPS
    assert constant(sizes), sizes


def test_without_a_session_they_grow(line: Line) -> None:
    """The line does count: the same without a session."""
    sizes = []
    with Client(line.url, timeout=30) as client:
        for number in range(10):
            client.system_one([message(n) for n in range(number + 1)], ASKED)
            sizes.append(line.step())
    assert not constant(sizes)
    assert sizes[-1] > sizes[1] + 20 * 8
