"""A request's way through the server: admitted, read, worked on elsewhere, answered in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.requests import ClientDisconnect

from flide_agent.exceptions import EngineUnavailable, FlideError, TimedOut
from flide_agent.policy import AuditRecord, JsonLines
from flide_agent.server.admission import Admission
from flide_agent.server.body import Packed, read_body
from flide_agent.server.errors import fault
from flide_agent.server.repeats import Repeats

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.requests import Request

    from flide_agent.runtime import Runtime
    from flide_agent.server.keys import Caller
    from flide_agent.server.settings import Settings
    from flide_agent.session_types import Answers

TIMEOUT_HEADER = "x-flide-timeout-ms"

Work: TypeAlias = Callable[[Packed, float], Any]
"""What to do with a body in so many seconds; gives a reply, or the promise of one."""


class Desk:
    """Takes requests in and hands answers out.

    Args:
        runtime: answers them.
        settings: of the server.

    Raises:
        InvalidInput: the file of the audit cannot be opened.
    """

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        self.runtime = runtime
        self.settings = settings
        self.admission = Admission(settings.requests)
        self.repeats = Repeats()
        self._audit = None if settings.audit is None else JsonLines(settings.audit)
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="flide-desk")

    async def serve(self, request: Request, caller: Caller, work: Work) -> Any:
        """The reply to a request.

        Args:
            request: its body is read here.
            caller: who asks.
            work: is done in another thread, and cancelled if the client goes away.

        Raises:
            ApiError, FlideError: what keeps it from being answered.
            ClientDisconnect: nobody waits for it any more.
        """
        seconds = self._seconds(request)
        ends = time.monotonic() + seconds
        with self.admission.enter(caller):
            try:
                async with asyncio.timeout(seconds):
                    packed = await read_body(request, caller.limits)
                    answer = self.off_loop(lambda: work(packed, ends - time.monotonic()))
                    return await _while_listening(request, answer)
            except TimeoutError as error:
                if isinstance(error, FlideError):
                    raise
                raise TimedOut(
                    f"there was no answer within {seconds:g} s: try again, ask less, or allow "
                    f"more time with the header {TIMEOUT_HEADER}."
                ) from None

    async def off_loop(self, work: Callable[[], Any]) -> Any:
        """Do it in a thread, and wait for what it promises; cancelling cancels the promise."""
        job = self._threads.submit(work)
        try:
            made = await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            job.add_done_callback(_abandon)
            raise
        if not isinstance(made, Future):
            return made
        try:
            return await asyncio.wrap_future(made)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            raise EngineUnavailable("the engine gave the request up: try again.") from None

    def later(self, work: Callable[[], object]) -> None:
        """Do it in a thread, for nobody who waits."""
        self._threads.submit(work)

    def write_down(self, caller: Caller, answers: Answers, ms: float | None = None) -> None:
        """Have the audit take a decision, if there is one; `ms` is the time until it was there."""
        if self._audit is None or answers.x_decision is None:
            return
        record = AuditRecord(
            decision=answers.x_decision,
            tenant=caller.tenant or None,
            new_tokens=answers.session.new_tokens,
            reused_tokens=answers.session.reused_tokens,
            ms=ms,
        )
        self.later(partial(self._audit.write, record))

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown()

    def _seconds(self, request: Request) -> float:
        """The time that a request may take."""
        given = request.headers.get(TIMEOUT_HEADER)
        if given is None:
            return self.settings.timeout
        # Nine digits are eleven days.
        if not (given.isascii() and given.isdecimal() and len(given) <= 9 and int(given) > 0):
            raise fault(f"the header {TIMEOUT_HEADER} must be a number of milliseconds above 0.")
        return min(int(given) / 1e3, self.settings.longest_timeout)


def _abandon(job: Future[Any]) -> None:
    """Cancel what a job promises, since nobody waits for it."""
    if not job.cancelled() and job.exception() is None and isinstance(job.result(), Future):
        job.result().cancel()


async def _while_listening(request: Request, answer: Coroutine[Any, Any, Any]) -> Any:
    """The answer; cancelled once the client is gone."""
    work = asyncio.create_task(answer)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        work.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
