"""Writes that nobody waits for: a queue bounded in bytes, and the thread that works it off."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Something to write.

    Attributes:
        slot: a later job of this slot takes its place while it is queued.
        nbytes: what it keeps in memory.
        run: writes it, and raises nothing.
    """

    slot: Hashable
    nbytes: int
    run: Callable[[], object]


class WriteBehind:
    """Runs jobs one after the other in a thread of its own.

    Args:
        budget_bytes: what queued jobs may keep in memory, the running one included.
        wait: seconds to let pass before the next job; 0 to go on.
        name: of the thread.
    """

    def __init__(self, budget_bytes: int, wait: Callable[[], float], name: str) -> None:
        self.budget_bytes = budget_bytes
        self._wait = wait
        self._changed = threading.Condition()
        self._jobs: dict[Hashable, Job] = {}
        self._bytes = 0
        self._running = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        """What queued jobs keep in memory, the running one included."""
        return self._bytes

    def put(self, jobs: Sequence[Job]) -> int | None:
        """Queue all jobs, or none and give None when they have no room.

        Returns:
            How many queued jobs they took the place of.
        """
        fresh = {job.slot: job for job in jobs}
        with self._changed:
            replaced = [self._jobs[slot] for slot in fresh if slot in self._jobs]
            grown = sum(job.nbytes for job in fresh.values())
            grown -= sum(job.nbytes for job in replaced)
            if self._closed or self._bytes + grown > self.budget_bytes:
                return None
            for job in replaced:
                del self._jobs[job.slot]
            self._jobs.update(fresh)
            self._bytes += grown
            self._changed.notify_all()
            return len(replaced)

    def flush(self, deadline: float) -> bool:
        """Wait until nothing is queued or running; False if the deadline came first."""
        with self._changed:
            while self._jobs or self._running:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            return True

    def drop(self) -> int:
        """Forget what is queued, and wait for the running job; how many were dropped."""
        with self._changed:
            dropped = len(self._jobs)
            self._bytes -= sum(job.nbytes for job in self._jobs.values())
            self._jobs.clear()
            while self._running:
                self._changed.wait()
            return dropped

    def close(self) -> int:
        """Take no more jobs, drop the queued ones and end the thread; how many were dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        dropped = self.drop()
        self._thread.join()
        return dropped

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs or self._wait() > 0:
                    if self._closed:
                        return
                    self._changed.wait(self._wait() if self._jobs else None)
                slot = next(iter(self._jobs))
                job = self._jobs.pop(slot)
                self._running = True
            try:
                job.run()
            finally:
                nbytes = job.nbytes
                del job  # its bytes are free before anybody is told so
                with self._changed:
                    self._running = False
                    self._bytes -= nbytes
                    self._changed.notify_all()
