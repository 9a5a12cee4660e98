"""The outermost layer: every reply gets a name, is counted and is written down."""

from __future__ import annotations

import json
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

from flide_agent.server.errors import ApiError, reply

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from flide_agent.server.metrics import Metrics

REQUEST_ID = "x-typesafe-request-id"

CLOSED = 499
"""The client went away before it was answered."""

_log = logging.getLogger(__name__)
access_log = logging.getLogger("flide_agent.access")


def new_request_id() -> str:
    """A name for a request, by which people can ask about it."""
    return f"req_{uuid.uuid4().hex}"


class Edge:
    """Names requests, answers what nobody else could, and keeps the books.

    Args:
        app: what is inside.
        metrics: counts.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # As it was sent: an encoded slash is part of a name, not of the way.
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        name = new_request_id()
        notes: dict[str, Any] = {}
        scope.setdefault("state", {})["notes"] = notes
        status = CLOSED
        began = time.perf_counter()

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (REQUEST_ID.encode(), name.encode())]
            await send(message)

        try:
            await self._app(scope, receive, named)
        except Exception:
            _log.exception("the request %s failed", name)
            if status != CLOSED:
                raise
            error = ApiError(500, "internal_error", f"the server failed; see {name} in its log.")
            await reply(error)(scope, receive, named)
        finally:
            seconds = time.perf_counter() - began
            self._note(scope, name, status, seconds, notes)

    def _note(
        self, scope: Scope, name: str, status: int, seconds: float, notes: dict[str, Any]
    ) -> None:
        # The route and not the path: ids of sessions may be names of people.
        route = getattr(scope.get("route"), "path_format", "")
        self._metrics.count(route, status, seconds)
        if access_log.isEnabledFor(logging.INFO):
            line = {
                "time": time.time(),
                "request": name,
                "method": scope["method"],
                "route": route,
                "status": status,
                "ms": round(1e3 * seconds, 2),
                **notes,
            }
            access_log.info("%s", json.dumps(line))
