"""Where requests come in: shared by all threads, and the one list of who still waits."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flide_engine.errors import EngineFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_engine.core import Outcome
    from flide_engine.work import Work

CLOSED = "the engine was closed before this request was answered: load it anew."


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Something to be done in the device's thread.

    Attributes:
        what: is called.
        done: promises what it returns.
    """

    what: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        """Do it."""
        try:
            self.done.set_result(self.what())
        except BaseException as error:
            self.done.set_exception(error)


class Inbox:
    """Hands requests to the engine's thread, and never loses one.

    Attributes:
        unfinished: all whose futures have not ended.
        fault: why the engine answers nothing any more; None while it does.
        closed: whether no more requests are taken.
        drains: whether those that are not eager are still answered once it is closed.
        keeper: kept alive while anything is unfinished.
    """

    def __init__(self) -> None:
        # Reentrant: whoever holds it may be the one that collects garbage, and so stops the engine.
        self._changed = threading.Condition(threading.RLock())
        self._arrived: list[Work] = []
        self._calls: list[Call] = []
        self.unfinished: set[Work] = set()
        self.fault: str | None = None
        self.closed = False
        self.drains = False
        self.keeper: object = None

    def put(self, works: Sequence[Work], keeper: object) -> None:
        """Take requests in, all at once.

        Raises:
            EngineFault: the engine answers nothing any more.
        """
        with self._changed:
            if self.closed:
                raise EngineFault(self.fault or CLOSED)
            self._arrived += works
            self.unfinished.update(works)
            self.keeper = keeper if self.unfinished else None
            self._changed.notify()

    def call(self, call: Call) -> None:
        """Have something done between two rounds.

        Raises:
            EngineFault: the engine answers nothing any more.
        """
        with self._changed:
            if self.closed:
                raise EngineFault(self.fault or CLOSED)
            self._calls.append(call)
            self._changed.notify()

    def calls(self) -> list[Call]:
        """What is to be done before the next round."""
        with self._changed:
            calls, self._calls = self._calls, []
            return calls

    def take(self, *, wait: bool) -> list[Work] | None:
        """What came since; None if nothing will ever come.

        Args:
            wait: until something comes.
        """
        with self._changed:
            while wait and not (self._arrived or self._calls or self.closed):
                self._changed.wait()
            arrived, self._arrived = self._arrived, []
            return None if wait and not (arrived or self._calls) else arrived

    def end(self, work: Work, result: Outcome | BaseException) -> None:
        """Keep a promise, unless it was cancelled."""
        with self._changed:
            self.unfinished.discard(work)
            if not self.unfinished:
                self.keeper = None
        if not work.claim():
            return
        if isinstance(result, BaseException):
            work.future.set_exception(result)
        else:
            work.future.set_result(result)

    def close(self, *, drain: bool) -> None:
        """Take no more requests; what waits is answered first only if `drain`."""
        with self._changed:
            self.drains = drain and (self.drains or not self.closed)
            self.closed = True
            self._changed.notify()

    def fail(self, fault: str, cause: BaseException) -> None:
        """Take no more requests, and tell everyone why."""
        with self._changed:
            self.closed, self.fault = True, fault
            left = list(self.unfinished)
            calls, self._calls = self._calls, []
        for call in calls:
            call.done.set_exception(EngineFault(fault))
        for work in left:
            error = EngineFault(fault)
            error.__cause__ = cause
            self.end(work, error)

    def counts(self) -> tuple[int, int, int]:
        """Requests that wait, those in a round under way, and the tokens of the former."""
        with self._changed:
            waiting = [work for work in self.unfinished if work.claimed is None]
            return (
                len(waiting),
                len(self.unfinished) - len(waiting),
                sum(work.left for work in waiting),
            )
