"""The way to a runtime in this process."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar

from flide_agent.client.calls import (
    Append,
    Ask,
    Call,
    Describe,
    Drop,
    Fork,
    Rewind,
    SystemOne,
)
from flide_agent.exceptions import FlideError, TimedOut
from flide_agent.runtime.runtime import Runtime
from flide_engine.engine import Engine
from flide_engine.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from flide_agent.session_types import Answers, AskRequest

T = TypeVar("T")


class LocalTransport:
    """Calls a runtime directly.

    Args:
        runtime: what is called.
        owns_engine: whether closing this closes the engine.
    """

    def __init__(self, runtime: Runtime, *, owns_engine: bool) -> None:
        self.runtime = runtime
        self._owns_engine = owns_engine

    def send(self, call: Call, *, tenant: str | None, timeout: float | None) -> Any:
        """Do it and wait for the reply."""
        if isinstance(call, (SystemOne, Ask)):
            began = time.monotonic()
            future = self._promise(call, tenant or "", timeout)
            try:
                return future.result(_left(timeout, began))
            except FutureTimeout as error:
                if future.done():
                    return future.result()
                future.cancel()
                raise _timed_out(timeout) from error
        return self._do(call, tenant or "")

    async def asend(self, call: Call, *, tenant: str | None, timeout: float | None) -> Any:
        """Do it without holding up the event loop."""
        if not isinstance(call, (SystemOne, Ask)):
            return await asyncio.to_thread(self._do, call, tenant or "")
        began = time.monotonic()
        future = await asyncio.to_thread(self._promise, call, tenant or "", timeout)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), _left(timeout, began))
        except TimeoutError as error:
            if isinstance(error, FlideError):
                raise
            raise _timed_out(timeout) from error

    def watch(
        self,
        session: str,
        request: AskRequest,
        callback: Callable[[Answers], Any] | None,
        *,
        tenant: str | None,
    ) -> Callable[[], None]:
        """Ask the same at every append; returns what stops it."""
        name = self.runtime.watch(tenant or "", session, request, callback)
        return lambda: self.runtime.unwatch(tenant or "", session, name)

    def close(self) -> None:
        """Stop the runtime, and the engine if it was loaded for it."""
        self.runtime.close()
        if self._owns_engine:
            self.runtime.engine.close()

    async def aclose(self) -> None:
        """The same without holding up the event loop."""
        await asyncio.to_thread(self.close)

    def _promise(
        self, call: SystemOne | Ask, tenant: str, timeout: float | None
    ) -> Future[Answers] | Future[Any]:
        if isinstance(call, SystemOne):
            return self.runtime.system_one(call.request, tenant=tenant, timeout=timeout)
        return self.runtime.ask(tenant, call.session, call.request, timeout=timeout)

    def _do(self, call: Call, tenant: str) -> Any:
        runtime = self.runtime
        match call:
            case Append(session, request):
                return runtime.append(tenant, session, request)
            case Fork(session, at):
                return runtime.fork(tenant, session, at)
            case Rewind(session, to):
                return runtime.rewind(tenant, session, to)
            case Describe(session, at):
                return runtime.describe(tenant, session, at=at, turns=True)
            case Drop(session):
                return runtime.drop(tenant, session)
        raise AssertionError(f"no such call: {call!r}")


def open_local(model: str | Engine, *, eager: bool = True, **options: Any) -> LocalTransport:
    """The way to an engine in this process.

    Args:
        model: a ready engine, or what `Engine.from_pretrained` loads.
        eager: whether an append is read at once.
        options: for `Engine.from_pretrained`.

    Raises:
        FlideError: the model cannot be loaded.
    """
    if isinstance(model, Engine):
        return LocalTransport(Runtime(model, eager=eager), owns_engine=False)
    try:
        engine = Engine.from_pretrained(model, **options)
    except EngineError as error:
        raise FlideError(str(error)) from error
    return LocalTransport(Runtime(engine, eager=eager), owns_engine=True)


def _left(timeout: float | None, began: float) -> float | None:
    """What is left of a time that began a while ago."""
    return None if timeout is None else max(timeout - (time.monotonic() - began), 0.0)


def _timed_out(timeout: float | None) -> TimedOut:
    return TimedOut(f"there was no answer within {timeout} s: allow more time, or ask less.")
