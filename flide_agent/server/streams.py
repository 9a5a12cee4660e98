"""Standing answers as server-sent events."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from fastapi.responses import StreamingResponse

from flide_agent.exceptions import SessionNotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

    from flide_agent.server.desk import Desk
    from flide_agent.server.keys import Caller
    from flide_agent.session_types import Answers, AskRequest

PING_SECONDS = 15.0
"""A stream that says nothing for longer is taken for dead on the way."""

_MOST = 1_000
"""Answers that wait for a slow reader; with more of them it is cut off."""


class Streams:
    """All that are open, so that they can be ended when the server stops."""

    def __init__(self) -> None:
        self._open: set[asyncio.Queue[Answers | None]] = set()
        self._closed = False

    def add(self, queue: asyncio.Queue[Answers | None]) -> None:
        """One more."""
        self._open.add(queue)
        if self._closed:
            queue.put_nowait(None)

    def remove(self, queue: asyncio.Queue[Answers | None]) -> None:
        """One less."""
        self._open.discard(queue)

    def close(self) -> None:
        """End all of them after what they have to say."""
        self._closed = True
        for queue in self._open:
            queue.put_nowait(None)


class AnswerStream:
    """The answers to one standing question.

    Args:
        desk: of the server.
        caller: whose session it is.
        session: its id.
    """

    def __init__(self, desk: Desk, caller: Caller, session: str) -> None:
        self._desk = desk
        self._runtime = desk.runtime
        self._caller = caller
        self._tenant = caller.tenant
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Answers | None] = asyncio.Queue()
        self._closed = False
        self._closing = ExitStack()
        self._closing.enter_context(desk.admission.watch(caller))

    def register(self, asked: AskRequest) -> None:
        """Ask from now on. Called in any thread."""
        name = self._runtime.watch(self._tenant, self._session, asked, self._hear)
        self._closing.callback(self._desk.later, partial(self._unwatch, name))
        if self._closed:
            self._closing.close()

    def response(self, streams: Streams) -> StreamingResponse:
        """The stream; it ends when the client goes or the server stops."""
        streams.add(self._queue)
        self._closing.callback(streams.remove, self._queue)
        return _EventStream(self._events(), self.close)

    def close(self) -> None:
        """Stop asking."""
        self._closed = True
        self._closing.close()

    def _unwatch(self, name: str) -> None:
        with suppress(SessionNotFound):
            self._runtime.unwatch(self._tenant, self._session, name)

    def _hear(self, answers: Answers) -> None:
        # The loop and the desk may be gone already when the last answer comes.
        with suppress(RuntimeError):
            self._desk.write_down(self._caller, answers)
            self._loop.call_soon_threadsafe(partial(self._put, answers))

    def _put(self, answers: Answers) -> None:
        if self._queue.qsize() < _MOST:
            self._queue.put_nowait(answers)
        elif self._queue.qsize() == _MOST:
            self._queue.put_nowait(None)

    async def _events(self) -> AsyncIterator[str]:
        yield "event: ready\ndata: {}\n\n"
        while True:
            try:
                answers = await asyncio.wait_for(self._queue.get(), PING_SECONDS)
            except TimeoutError:
                yield ": still here\n\n"
                continue
            if answers is None:
                return
            yield f"event: answers\ndata: {answers.model_dump_json()}\n\n"


class _EventStream(StreamingResponse):
    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], close: Callable[[], None]) -> None:
        super().__init__(events, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it ends or nobody listens."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()
