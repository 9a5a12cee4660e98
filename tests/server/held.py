"""A runtime that holds requests up."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from flide_agent.runtime import Runtime

if TYPE_CHECKING:
    from flide_engine.engine import Engine

PATIENT = 20.0
"""Seconds after which a test no longer believes that something will happen."""


class Held(Runtime):
    """A runtime whose stateless requests wait until they are let go.

    Attributes:
        waiting: their promises, in order.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.waiting: list[Future[Any]] = []
        self._asked: list[Any] = []
        self._open = False
        self._came = threading.Condition()

    def system_one(self, *args: Any, **options: Any) -> Future[Any]:
        """Note it."""
        if self._open:
            return super().system_one(*args, **options)
        promise: Future[Any] = Future()
        with self._came:
            self._asked.append((args, options))
            self.waiting.append(promise)
            self._came.notify_all()
        return promise

    def wait_for(self, count: int) -> None:
        """Until so many wait."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.waiting) >= count, PATIENT)

    def let_go(self) -> None:
        """Answer those that wait, and from now on at once."""
        self._open = True
        for promise, (args, options) in zip(self.waiting, self._asked, strict=True):
            promise.set_result(self.system_one(*args, **options).result(PATIENT))
