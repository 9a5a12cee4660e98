"""The scheduler's door: requests from any thread go in, promises come out."""

from __future__ import annotations

import atexit
import threading
import weakref
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from flide_engine.errors import EngineError
from flide_engine.inbox import Call, Inbox
from flide_engine.work import Work
from flide_engine.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_engine.core import Outcome, Request
    from flide_engine.lower import Restored
    from flide_engine.runner import Runner

T = TypeVar("T")

AT_EXIT_SECONDS = 30.0
"""How long the interpreter waits for the round under way before it goes."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a scheduler is.

    Attributes:
        alive: whether it takes requests.
        fault: why it does not, if it broke.
        waiting, running: requests that wait for a round, and those in one.
        waiting_tokens: what the former have left to compute.
    """

    alive: bool
    fault: str | None
    waiting: int
    running: int
    waiting_tokens: int


class Scheduler:
    """Packs rounds from what waits and runs them in a thread of its own, which it starts when used.

    Small requests go before large ones, but not for ever (`work.PATIENCE`); long trunks are read in
    pieces with others between them; what is wrong with one request is only its own.

    Safe to use from several threads. What is waited for is answered even if nobody holds the
    scheduler any more; then its thread ends.

    Args:
        runner: what runs a round; nobody else may use it from now on.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._inbox = Inbox()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def submit(
        self,
        request: Request,
        *,
        deadline: float | None = None,
        eager: bool = False,
        restored: Restored | None = None,
        choice: str = "",
    ) -> Future[Outcome]:
        """Have a request answered; returns at once.

        Cancelling the promise before its last round begins costs nothing more. Whoever is called
        back by it is called in the scheduler's thread, and must neither wait for it nor take long.

        Args:
            request: what to read.
            deadline: a `time.monotonic()`; if its last round has not begun by then, it never will.
            eager: gives way to all requests that are not.
            restored: a checkpoint of it that came from below the device.
            choice: why one did or did not.

        Returns:
            A promise of the outcome, or of an error: RequestTooLarge, NonFiniteError,
            DeadlineExceeded, EngineFault, or whatever the model raised for this request alone.
        """
        work = Work(request, Future(), deadline, eager, restored=restored, choice=choice)
        self._put([work])
        return work.future

    def submit_all(self, requests: Sequence[Request]) -> list[Future[Outcome]]:
        """Have requests answered that come together: equal trunks among them are computed once."""
        works = [Work(request, Future()) for request in requests]
        self._put(works)
        return [work.future for work in works]

    def _put(self, given: Sequence[Work]) -> None:
        works = []
        for work in given:
            try:
                self._runner.check(work.request)
            except EngineError as error:
                work.future.set_exception(error)
            else:
                works.append(work)
        if works:
            self._start()
        try:
            self._inbox.put(works, keeper=self)
        except EngineError as error:
            for work in works:
                work.future.set_exception(error)

    def run(self, requests: Sequence[Request]) -> list[Outcome]:
        """Answer requests and wait for them; if one fails, those that have not begun are cancelled.

        Raises:
            EngineError: as `submit` promises.
        """
        assert threading.current_thread() is not self._thread, "the scheduler cannot await itself"
        futures = self.submit_all(requests)
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def call(self, what: Callable[[], T]) -> T:
        """What a function returns that is called between two rounds, in the device's thread.

        Raises:
            EngineFault: the engine answers nothing any more.
        """
        call = Call(what)
        self._start()
        self._inbox.call(call)
        result: T = call.done.result()
        return result

    @property
    def health(self) -> Health:
        """How it is now."""
        inbox = self._inbox
        return Health(not inbox.closed, inbox.fault, *inbox.counts())

    def close(self, *, drain: bool) -> None:
        """Take no more requests, and wait for the thread to end.

        Args:
            drain: whether those that wait are answered first, except for eager ones; the others
                get an EngineFault.
        """
        self._inbox.close(drain=drain)
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None or self._inbox.closed:
                return
            inbox = self._inbox
            worker = Worker(self._runner, inbox)
            thread = threading.Thread(target=worker.run, name="flide-engine", daemon=True)
            thread.start()
            self._thread = thread

        # A thread that is inside the model when the interpreter goes would bring it down.
        def at_exit() -> None:
            inbox.close(drain=False)
            thread.join(AT_EXIT_SECONDS)

        def abandoned() -> None:
            inbox.close(drain=False)
            atexit.unregister(at_exit)

        atexit.register(at_exit)
        weakref.finalize(self, abandoned).atexit = False
