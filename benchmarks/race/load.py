"""Clients and agents in one event loop, and what they saw.

aiohttp spends 0.1 ms on a request where httpx spends 5 with 64 clients: the loop must never be what
is measured. How busy it was is part of every result.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import uvloop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

WARM_SECONDS = 2.0
"""Of the same load, unmeasured, before what is measured."""

PAUSE_SECONDS = 0.05
"""Between what an agent appends and what it asks."""

_GIVE_UP_SECONDS = 600


class Refused(Exception):
    """A server did not answer."""


class Reply(NamedTuple):
    """An answer.

    Attributes:
        seconds: it took.
        body: as it came.
        asked: where it is to be asked again: the state and the questions.
    """

    seconds: float
    body: bytes
    asked: tuple[str, Mapping[str, Any]]


@dataclass(slots=True)
class Seen:
    """What a load was answered.

    Attributes:
        replies: to requests that were made in the time that counts.
        finished: how many came in it, whenever they were asked for.
        appends: seconds that appending to a session took.
        seconds: that counted.
        busy: share of them in which this process computed.
    """

    seconds: float
    replies: list[Reply] = field(default_factory=list)
    finished: int = 0
    appends: list[float] = field(default_factory=list)
    busy: float = 0.0


class Http:
    """Connections to one server; an async context manager."""

    def __init__(self, url: str, fields: Mapping[str, Any]) -> None:
        self._url = url
        self._fields = fields

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            self._url,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=_GIVE_UP_SECONDS),
            headers={"content-type": "application/json"},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def ask(self, state: str, questions: Mapping[str, Any]) -> Reply:
        """Ask about a state."""
        body = json.dumps({**self._fields, "state": state, "questions": questions}).encode()
        seconds, reply = await self.post("/v1/systemone", body)
        return Reply(seconds, reply, (state, questions))

    async def post(self, path: str, body: bytes) -> tuple[float, bytes]:
        """Seconds to a reply, and the reply."""
        began = time.perf_counter()
        async with self._session.post(path, data=body) as response:
            reply = await response.read()
            if response.status != 200:
                raise Refused(f"{path}: HTTP {response.status}: {reply[:300]!r}")
        return time.perf_counter() - began, reply


class _Clock:
    """Tells drivers whether to go on, and keeps what counts of what they see."""

    def __init__(self, warm: float, seconds: float) -> None:
        self.seen = Seen(seconds)
        self._began = time.perf_counter() + warm
        self._end = self._began + seconds

    @property
    def goes_on(self) -> bool:
        """Whether there is time for one more."""
        return time.perf_counter() < self._end

    def note(self, reply: Reply) -> None:
        """A reply that just came."""
        now = time.perf_counter()
        self.seen.finished += self._began <= now < self._end
        if now - reply.seconds >= self._began:
            self.seen.replies.append(reply)

    def note_append(self, seconds: float) -> None:
        """An append that was just done."""
        if time.perf_counter() - seconds >= self._began:
            self.seen.appends.append(seconds)

    async def watch(self) -> None:
        """See how busy this process is while it counts."""
        await asyncio.sleep(self._began - time.perf_counter())
        computed, since = time.process_time(), time.perf_counter()
        await asyncio.sleep(self._end - since)
        self.seen.busy = (time.process_time() - computed) / (time.perf_counter() - since)


Driver = Callable[[Http, _Clock, int], Coroutine[Any, Any, None]]


def run(url: str, fields: Mapping[str, Any], driver: Driver, count: int, seconds: float) -> Seen:
    """Let so many drivers at a server, at the same time.

    Raises:
        Refused: one was not answered, or none in time.
    """
    return uvloop.run(_run(url, fields, driver, count, seconds))


async def _run(
    url: str, fields: Mapping[str, Any], driver: Driver, count: int, seconds: float
) -> Seen:
    async with Http(url, fields) as http:
        clock = _Clock(WARM_SECONDS, seconds)
        tasks = [driver(http, clock, index) for index in range(count)]
        # Not a TaskGroup: its errors come in groups, and the first one says it all.
        await asyncio.gather(clock.watch(), *tasks)
    if not clock.seen.replies:
        raise Refused(f"no answer came within {seconds:g} s: allow more (--seconds).")
    return clock.seen


def clients(rows: Sequence[Mapping[str, Any]]) -> Driver:
    """Each sends request after request. Every state begins with a tag that none other has."""
    tag = uuid.uuid4().hex[:6]
    sent = iter(range(10**9))

    async def drive(http: Http, clock: _Clock, index: int) -> None:
        while clock.goes_on:
            number = next(sent)
            row = rows[number % len(rows)]
            clock.note(await http.ask(f"[{tag} {number}]\n{row['state']}", row["questions"]))

    return drive


def histories(agents: Sequence[Mapping[str, Any]]) -> Driver:
    """Each lives one agent's life after the other, and sends all of its history at every step."""

    async def drive(http: Http, clock: _Clock, index: int) -> None:
        for name, agent in _lives(agents, index, clock):
            state = f"[{name}]\n"
            for step in agent["steps"]:
                if not clock.goes_on:
                    return
                state += step
                clock.note(await http.ask(state, agent["questions"]))

    return drive


def sessions(agents: Sequence[Mapping[str, Any]], *, pause: bool) -> Driver:
    """The same through sessions: only what is new is sent, and read while the agent pauses."""

    async def drive(http: Http, clock: _Clock, index: int) -> None:
        for name, agent in _lives(agents, index, clock):
            path = f"/v1/sessions/{name.replace(' ', '-')}"
            question = json.dumps({"questions": agent["questions"]}).encode()
            state, new = "", f"[{name}]\n"
            for step in agent["steps"]:
                if not clock.goes_on:
                    return
                new += step
                body = json.dumps({"messages": [new]}).encode()
                clock.note_append((await http.post(f"{path}/append", body))[0])
                state, new = state + new, ""
                if pause:
                    await asyncio.sleep(PAUSE_SECONDS)
                seconds, reply = await http.post(f"{path}/systemone", question)
                clock.note(Reply(seconds, reply, (state, agent["questions"])))

    return drive


def _lives(
    agents: Sequence[Mapping[str, Any]], index: int, clock: _Clock
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    number = index
    while clock.goes_on:
        yield f"agent {uuid.uuid4().hex[:8]}", agents[number % len(agents)]
        number += 1
