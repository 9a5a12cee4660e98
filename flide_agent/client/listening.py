"""Standing answers from a server, heard in a thread."""

from __future__ import annotations

import json
import logging
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx

from flide_agent.client.wire import error_of, watch_path
from flide_agent.exceptions import EngineUnavailable, FlideError, Unauthorized
from flide_agent.session_types import Answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flide_agent.session_types import AskRequest

_log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 60.0
"""A server says at least every 15 seconds that it is still there."""

_WAITS = (0.5, 1.0, 2.0, 5.0)
"""Before it is asked again after the stream broke off; the last one from then on."""


class Listener:
    """Holds a stream of standing answers open, and opens it again when it breaks off.

    What is appended while it is broken is not heard.

    Args:
        client: for this stream alone; closed at the end.
        session: the session's key.
        request: what is asked.
        callback: hears every reply; None where it is only looked up.
    """

    def __init__(
        self,
        client: httpx.Client,
        session: str,
        request: AskRequest,
        callback: Callable[[Answers], Any] | None,
    ) -> None:
        self._client = client
        self._session = session
        self._body = request.model_dump_json(exclude_none=True).encode()
        self._callback = callback
        self._response: httpx.Response | None = None
        self._stopped = threading.Event()
        self._begun = threading.Event()
        self._error: FlideError | None = None
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="flide-listener", daemon=True)

    def start(self) -> None:
        """Begin; returns when the server has heard it, so that no later append is missed.

        Raises:
            FlideError: the server does not take it.
        """
        self._thread.start()
        if not self._begun.wait(2 * _CONNECT_SECONDS):
            self._error = EngineUnavailable("the server does not begin to answer.")
        if self._error is not None:
            self.stop()
            raise self._error

    def stop(self) -> None:
        """Stop listening; the server notices and stops asking."""
        self._stopped.set()
        response = self._response
        if response is not None:
            # Wakes the thread that reads from it, which then closes it.
            wire = response.extensions["network_stream"].get_extra_info("socket")
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        with self._client:
            while not self._stopped.is_set():
                try:
                    self._listen()
                    error: Exception = EngineUnavailable("the server ended them")
                except (httpx.RequestError, FlideError) as raised:
                    error = raised
                if not self._begun.is_set() or not _may_pass(error):
                    self._give_up(error)
                    return
                if not self._stopped.is_set():
                    _log.warning("standing answers broke off (%s): asking again", error)
                self._stopped.wait(_WAITS[min(self._failures, len(_WAITS) - 1)])
                self._failures += 1

    def _give_up(self, error: Exception) -> None:
        if self._begun.is_set():
            _log.error("standing answers ended: %s", error)
        self._error = (
            error
            if isinstance(error, FlideError)
            else EngineUnavailable(f"{self._client.base_url} cannot be reached: {error}")
        )
        self._begun.set()

    def _listen(self) -> None:
        with self._client.stream(
            "POST",
            watch_path(self._session),
            content=self._body,
            headers={"content-type": "application/json", "accept": "text/event-stream"},
            timeout=httpx.Timeout(_SILENT_SECONDS, connect=_CONNECT_SECONDS),
        ) as response:
            if not response.is_success:
                response.read()
                raise error_of(response)
            self._response = response
            try:
                for event, data in _events(response.iter_lines()):
                    self._hear(event, data)
            finally:
                self._response = None

    def _hear(self, event: str, data: str) -> None:
        if event == "ready":
            self._failures = 0
            self._begun.set()
        elif event == "answers" and self._callback is not None and not self._stopped.is_set():
            try:
                self._callback(Answers.model_validate(json.loads(data)))
            except Exception:
                _log.warning("standing answers were not heard", exc_info=True)


def _may_pass(error: Exception) -> bool:
    """Whether asking again may help."""
    if isinstance(error, Unauthorized):
        return False
    return isinstance(error, (httpx.RequestError, EngineUnavailable))


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """The names and data of server-sent events."""
    event, data = "message", list[str]()
    for line in lines:
        if not line:
            if data:
                yield event, "\n".join(data)
            event, data = "message", []
            continue
        field, _, value = line.partition(":")
        if field == "event":
            event = value.removeprefix(" ")
        elif field == "data":
            data.append(value.removeprefix(" "))
