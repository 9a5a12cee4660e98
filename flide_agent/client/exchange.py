"""One call over HTTP: how often and for how long it is tried. Knows nothing of sockets."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import httpx

from flide_agent.client.wire import error_of, to_wire
from flide_agent.exceptions import EngineUnavailable, InvalidInput, TimedOut

if TYPE_CHECKING:
    from flide_agent.client.calls import Call
    from flide_agent.exceptions import FlideError

TRIES = 3
"""Times that a request is sent before it is given up."""

TIMEOUT_HEADER = "x-flide-timeout-ms"

LONGEST_SECONDS = 600.0
"""What a server is asked for by those who wait as long as it takes."""

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0
_CONNECT_SECONDS = 5.0
_GRACE_SECONDS = 0.25
"""For a server's own word that time is over."""


class Exchange:
    """A call that is tried until it is answered, refused, or out of time.

    Args:
        call: what is asked.
        base_url: of the server, for errors.
        timeout: seconds for all tries together; None for as long as it takes.
    """

    def __init__(self, call: Call, base_url: str, timeout: float | None) -> None:
        self._wire = to_wire(call)
        self._base_url = base_url
        self._timeout = timeout
        self._ends = None if timeout is None else time.monotonic() + timeout
        self._tries = 0

    def parts(self) -> dict[str, Any]:
        """The next try, as the arguments of `httpx.Client.request`."""
        left = self._left()
        wait = None if self._ends is None else left + _GRACE_SECONDS
        headers = {TIMEOUT_HEADER: str(max(1, round(1e3 * min(left, LONGEST_SECONDS))))}
        if self._wire.body is not None:
            headers["content-type"] = "application/json"
        return {
            "method": self._wire.method,
            "url": self._wire.path,
            "content": self._wire.body,
            "headers": headers | self._wire.headers,
            "timeout": httpx.Timeout(wait, connect=min(left, _CONNECT_SECONDS)),
        }

    def judge(self, outcome: httpx.Response | httpx.RequestError) -> float | None:
        """What came of a try: None if it was answered, else the seconds to wait before another one.

        Raises:
            FlideError: it will not be answered.
        """
        self._tries += 1
        if isinstance(outcome, httpx.Response):
            if outcome.is_success:
                return None
            error, again = error_of(outcome), _may_pass(outcome)
        else:
            error, again = self._broken(outcome), not _took_too_long(outcome)
        wait = _wait(outcome, self._tries)
        if not again or isinstance(error, TimedOut) or self._tries >= TRIES or wait > self._left():
            raise error
        return wait

    def reply(self, response: httpx.Response) -> Any:
        """The reply in a good response."""
        return self._wire.read(response)

    def late(self) -> TimedOut:
        """The error when there is no time left."""
        return TimedOut(
            f"{self._base_url} did not answer within {self._timeout} s: allow more time, or ask "
            "less."
        )

    def _left(self) -> float:
        return LONGEST_SECONDS if self._ends is None else max(self._ends - time.monotonic(), 0.001)

    def _broken(self, error: httpx.RequestError) -> FlideError:
        if _took_too_long(error):
            return self.late()
        if isinstance(error, (httpx.UnsupportedProtocol, httpx.ProxyError)):
            return InvalidInput(f"{self._base_url} cannot be asked: {error}")
        return EngineUnavailable(
            f"{self._base_url} cannot be reached ({type(error).__name__}: {error}): is the server "
            "running there?"
        )


def _may_pass(response: httpx.Response) -> bool:
    """Whether the same request may be answered later."""
    return response.status_code in (408, 429) or response.status_code >= 500


def _took_too_long(error: httpx.RequestError) -> bool:
    """Whether a server was there, and said nothing in all the time that was left."""
    return isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout)


def _wait(outcome: httpx.Response | httpx.RequestError, tries: int) -> float:
    """Seconds before the next try: those that the server names, or more each time."""
    headers = outcome.headers if isinstance(outcome, httpx.Response) else httpx.Headers()
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value: str = headers.get(name, "")
        if value.isascii() and value.isdecimal() and len(value) < 9:
            return int(value) * unit
    longest = min(_FIRST_WAIT * float(2 ** (tries - 1)), _LONGEST_WAIT)
    return random.uniform(0.5, 1.0) * longest
