"""Who may come in: so many requests at a time of each tenant, and so many of all."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from flide_agent.server.errors import BUSY, busy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flide_agent.server.keys import Caller

_LEAST_SECONDS, _MOST_SECONDS = 0.1, 5.0
_WEIGHT = 0.1
"""Of a request in the running mean of how long they take."""


class Admission:
    """Counts what is in hand. For one event loop, so it needs no lock.

    Args:
        most: requests in hand at the same time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._tenants: Counter[str] = Counter()
        self._watches: Counter[str] = Counter()
        self._mean = _LEAST_SECONDS

    @property
    def in_hand(self) -> int:
        """Requests that were let in and are not answered yet."""
        return self._tenants.total()

    @property
    def watching(self) -> int:
        """Streams that are open."""
        return self._watches.total()

    @contextmanager
    def enter(self, caller: Caller) -> Iterator[None]:
        """Let a request in.

        Raises:
            ApiError: there are too many.
        """
        if self._tenants.total() >= self._most:
            raise busy(
                BUSY,
                "overloaded_error",
                f"the server has {self._most} requests in hand already: try again later.",
                self._soon(),
            )
        if self._tenants[caller.tenant] >= caller.limits.requests:
            raise busy(
                429,
                "rate_limit_error",
                f"{caller.limits.requests} requests of yours are in hand already: wait for one.",
                self._soon(),
            )
        began = monotonic()
        with _counted(self._tenants, caller.tenant):
            yield
        self._mean += _WEIGHT * (monotonic() - began - self._mean)

    @contextmanager
    def watch(self, caller: Caller) -> Iterator[None]:
        """Let a stream of standing answers in.

        Raises:
            ApiError: there are too many.
        """
        if self._watches[caller.tenant] >= caller.limits.watches:
            raise busy(
                429,
                "rate_limit_error",
                f"{caller.limits.watches} streams of yours are open already: close one.",
                _MOST_SECONDS,
            )
        with _counted(self._watches, caller.tenant):
            yield

    def _soon(self) -> float:
        """When a place may be free: after about the time that a request takes."""
        return min(max(self._mean, _LEAST_SECONDS), _MOST_SECONDS)


@contextmanager
def _counted(counter: Counter[str], tenant: str) -> Iterator[None]:
    counter[tenant] += 1
    try:
        yield
    finally:
        counter[tenant] -= 1
        if not counter[tenant]:
            del counter[tenant]
