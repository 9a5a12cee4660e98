"""Replies to requests whose bodies were not read to their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SMALL_BYTES = 64 << 10
"""A body that the web server may read and throw away by itself."""

_SECONDS = 2.0
"""For the client to read the reply and stop sending."""


class Linger:
    """Closes connections on which more would come than anybody wants to read.

    Closed at once, a client that is still sending would lose the reply. So what it sends is thrown
    away for a moment, and then the connection ends.

    Args:
        app: what is inside.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        if scope["type"] != "http" or not _is_large(scope):
            await self._app(scope, receive, send)
            return
        unread, lingering = True, False

        async def noted() -> Message:
            nonlocal unread
            message = await receive()
            unread = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def held_back(message: Message) -> None:
            nonlocal lingering
            if message["type"] == "http.response.start" and unread:
                lingering = True
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            if not lingering or message.get("more_body") or message["type"][-4:] != "body":
                await send(message)
                return
            await send({**message, "more_body": True})
            await _drain(receive)
            await send({"type": "http.response.body"})

        await self._app(scope, noted, held_back)


async def _drain(receive: Receive) -> None:
    try:
        async with asyncio.timeout(_SECONDS):
            while (await receive()).get("more_body"):
                pass
    except TimeoutError:
        pass


def _is_large(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return True
    length = headers.get(b"content-length", b"0")
    return not length.isdigit() or len(length) > 9 or int(length) > _SMALL_BYTES
