"""Stops asking a server that fails, and finds out when it works again."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from flide_cache.errors import Paused

if TYPE_CHECKING:
    from collections.abc import Callable


class Breaker:
    """Opens after some failures in a row; then one call at a time may try, ever more rarely.

    Args:
        failures: in a row that open it.
        pause: seconds until the first try; doubled after each that fails.
        longest: the longest pause.
        clock: the time, in seconds.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        pause: float = 5.0,
        longest: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = failures
        self.pause = pause
        self.longest = longest
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._pause = pause
        self._until: float | None = None
        self._trying = False

    @property
    def remaining(self) -> float:
        """Seconds until the next call is let through; 0 when it would be now."""
        with self._lock:
            return 0.0 if self._until is None else max(0.0, self._until - self._clock())

    @property
    def open(self) -> bool:
        """Whether it stays open until a try succeeds."""
        return self._until is not None

    def check(self) -> None:
        """Let a call through.

        Raises:
            Paused: it is open, and this is no time for a try.
        """
        with self._lock:
            if self._until is None:
                return
            now = self._clock()
            if now < self._until:
                raise Paused(f"switched off for another {self._until - now:.1f} s")
            # This call is the try. The next one comes a pause later, whatever becomes of this one.
            self._until = now + self._pause
            self._trying = True

    def succeeded(self) -> None:
        """A call went well: closed."""
        with self._lock:
            self._failed = 0
            self._pause = self.pause
            self._until = None
            self._trying = False

    def failed(self, *, pause: float | None = None) -> None:
        """A call failed.

        Args:
            pause: open at once, for so long; None to count as any failure.
        """
        with self._lock:
            self._failed += 1
            if pause is not None:
                self._until = self._clock() + pause
            elif self._trying:
                self._pause = min(2 * self._pause, self.longest)
                self._until = self._clock() + self._pause
            elif self._until is None and self._failed >= self.failures:
                self._until = self._clock() + self._pause
            # Calls that began before it opened, and fail now, change nothing.
            self._trying = False
