"""Many clients at once, that ask, go away, and spoil every tenth request."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
import httpx
import pytest

from flide_agent import AsyncClient, Busy, SystemOneResponse
from flide_agent.runtime import to_response
from tests.agent.sessions.conftest import numbers
from tests.server.conftest import ASKED, body
from tests.server.held import PATIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from flide_engine.engine import Engine
    from tests.server.conftest import Served

T = TypeVar("T")

WORDS = ("the build", "is red", "a test", "failed", "again", "and was mended", "by nobody", "\n")
OPENINGS = tuple(f"Run {n}: an agent began to work on what it was told. " * 4 for n in range(4))

LONG = 60.0
"""Seconds after which a request of a crowd is taken for stuck."""

_PLAIN = {"content-type": "application/json"}
_POISON: tuple[tuple[bytes, dict[str, str], int], ...] = (
    (b"{", _PLAIN, 422),
    (json.dumps(body(float("nan"))).encode(), _PLAIN, 422),
    (json.dumps(body("half \ud800")).encode(), _PLAIN, 422),
    (json.dumps(body(questions={"q": {"type": "choice", "criteria": {}}})).encode(), _PLAIN, 422),
    (json.dumps(body(session_id=["x"])).encode(), _PLAIN, 422),
    (json.dumps(body(model="another")).encode(), _PLAIN, 404),
    (json.dumps(body("x" * 9_000)).encode(), _PLAIN, 413),
    (b"no such thing", _PLAIN | {"content-encoding": "zstd"}, 422),
    (b"?", _PLAIN | {"content-encoding": "br"}, 415),
    (b"[" * 50_000, _PLAIN, 422),
)


class Crowd:
    """Clients of one server.

    Args:
        url: the server's.
        key: an API key, or none.

    Attributes:
        replies: a text that was asked about, and the numbers of the answer.
        counts: of what came of the requests.
    """

    def __init__(self, url: str, key: str = "") -> None:
        self._url = url
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._turn = itertools.count(1)
        self._whim = random.Random()
        self.replies: list[tuple[str, list[float]]] = []
        self.counts: Counter[str] = Counter()

    async def come(self, clients: int, steps: int) -> None:
        """So many of them, each with a history that grows by so many steps."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(LONG)
        async with (
            aiohttp.ClientSession(
                self._url, connector=connector, timeout=timeout, headers=self._headers
            ) as http,
            AsyncClient(self._url, timeout=LONG) as client,
            asyncio.TaskGroup() as group,
        ):
            for number in range(clients):
                group.create_task(
                    self._steps_of_session(client, steps)
                    if number % 8 == 7
                    else self._steps(http, number, steps)
                )

    async def _steps(self, http: aiohttp.ClientSession, number: int, steps: int) -> None:
        """A client that sends its whole history, by a session's name or by none."""
        texts = [self._whim.choice(OPENINGS)]
        for _ in range(steps):
            texts.append(self._text())
            if next(self._turn) % 10 == 0:
                await self._spoil(http)
            sent = body("".join(texts))
            if number % 2:
                sent = body(texts, session_id=f"crowd-{number}")
            await self._perhaps(self._ask(http, sent, "".join(texts)))

    async def _steps_of_session(self, client: AsyncClient, steps: int) -> None:
        """A client that sends what is new; whatever it gave up, its next answer must be right."""
        session = client.session()
        await self._insist(partial(session.append, self._whim.choice(OPENINGS)))
        for _ in range(steps):
            await self._perhaps(self._insist(partial(session.append, self._text())))
            await self._perhaps(self._insist(partial(session.ask, ASKED)))
            self._note(session.text, await self._insist(partial(session.ask, ASKED)))
        await self._insist(session.close)

    async def _insist(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do it, however busy the server is."""
        while True:
            try:
                return await work()
            except Busy:
                self.counts["busy"] += 1
                await asyncio.sleep(self._whim.uniform(0.1, 0.5))

    def _text(self) -> str:
        return " ".join(self._whim.choices(WORDS, k=self._whim.randint(1, 25)))

    async def _perhaps(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do it, or go away in the middle."""
        task = asyncio.create_task(work)
        patience = self._whim.expovariate(20) if self._whim.random() < 0.4 else None
        try:
            await asyncio.wait_for(task, patience)
        except TimeoutError:
            if not task.cancelled():
                raise
            self.counts["gone"] += 1

    async def _ask(self, http: aiohttp.ClientSession, sent: dict[str, Any], text: str) -> None:
        while True:
            async with http.post("/v1/systemone", json=sent) as reply:
                content = await reply.json()
                self.counts[str(reply.status)] += 1
                if reply.status == 200:
                    self._note(text, SystemOneResponse.model_validate(content))
                    return
                assert reply.status in (429, 529), content
                assert content["detail"]["error_type"] != "timeout_error", content
                wait = int(reply.headers["retry-after-ms"]) / 1e3
            await asyncio.sleep(wait * self._whim.uniform(0.5, 1.5))

    async def _spoil(self, http: aiohttp.ClientSession) -> None:
        data, headers, status = self._whim.choice(_POISON)
        async with http.post("/v1/systemone", data=data, headers=headers) as reply:
            content = await reply.json()
        # One that the server was too busy to read is told so.
        assert reply.status in (status, 429, 529), content
        self.counts["poisoned"] += reply.status == status

    def _note(self, text: str, response: SystemOneResponse) -> None:
        self.replies.append((text, numbers(response)))
        self.counts["answered"] += 1


def check_answers(replies: list[tuple[str, list[float]]], fresh: Engine) -> None:
    """Every answer is that of the engine asked alone."""
    alone: dict[str, list[float]] = {}
    for text, found in replies:
        if text not in alone:
            fresh.pool.clear()
            alone[text] = numbers(to_response(fresh.decide(text, ASKED), ""))
        assert found == pytest.approx(alone[text], abs=1e-9), text


def figures(served: Served | str) -> dict[str, float]:
    """The server's metrics that have no labels."""
    url = served if isinstance(served, str) else served.url
    lines = httpx.get(f"{url}/metrics", timeout=PATIENT).text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line[:1] != "#" and "{" not in line)
    return {name: float(value) for name, value in pairs}
