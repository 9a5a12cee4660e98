"""The way to a server, over HTTP."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import httpx

from flide_agent.client.exchange import Exchange
from flide_agent.client.listening import Listener
from flide_agent.exceptions import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_agent.client.calls import Call
    from flide_agent.session_types import Answers, AskRequest

_LIMITS = httpx.Limits(max_connections=200, max_keepalive_connections=50, keepalive_expiry=30)


class HttpTransport:
    """Calls a System One server; with flide's own, sessions too.

    What fails on the way, or because the server is busy or broken, is tried again: every call is
    such that doing it twice is doing it once.

    Args:
        base_url: the server's root, such as http://localhost:8000; by default FLIDE_BASE_URL, else
            TYPESAFE_BASE_URL.
        api_key: by default FLIDE_API_KEY; where the address is TYPESAFE_BASE_URL,
            TYPESAFE_API_KEY, which is sent nowhere else.

    Raises:
        InvalidInput: there is no address, or it is none.
    """

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        self.base_url, key = _address(base_url, api_key)
        self._options: dict[str, Any] = {
            "base_url": self.base_url,
            "headers": {"accept": "application/json", **_authorization(key)},
            "limits": _LIMITS,
        }
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        # Connections belong to the event loop that opened them.
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )
        self._listeners: list[Listener] = []

    def send(self, call: Call, *, tenant: str | None, timeout: float | None) -> Any:
        """Do it and wait for the reply."""
        _check_tenant(tenant)
        with self._lock:
            client = self._client = self._client or httpx.Client(**self._options)
        exchange = Exchange(call, self.base_url, timeout)
        while True:
            try:
                outcome: Any = client.request(**exchange.parts())
            except httpx.RequestError as error:
                outcome = error
            if (wait := exchange.judge(outcome)) is None:
                return exchange.reply(outcome)
            time.sleep(wait)

    async def asend(self, call: Call, *, tenant: str | None, timeout: float | None) -> Any:
        """Do it without holding up the event loop."""
        _check_tenant(tenant)
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx.AsyncClient(**self._options)
        exchange = Exchange(call, self.base_url, timeout)
        while True:
            try:
                outcome: Any = await client.request(**exchange.parts())
            except httpx.RequestError as error:
                outcome = error
            if (wait := exchange.judge(outcome)) is None:
                return exchange.reply(outcome)
            await asyncio.sleep(wait)

    def watch(
        self,
        session: str,
        request: AskRequest,
        callback: Callable[[Answers], Any] | None,
        *,
        tenant: str | None,
    ) -> Callable[[], None]:
        """Ask the same at every append; returns what stops it. The callback is called in a thread.

        Raises:
            FlideError: the server does not take it.
        """
        _check_tenant(tenant)
        listener = Listener(httpx.Client(**self._options), session, request, callback)
        listener.start()
        self._listeners.append(listener)
        return listener.stop

    def close(self) -> None:
        """Close what does not belong to an event loop."""
        for listener in self._listeners:
            listener.stop()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close all of it, as far as this event loop may."""
        await asyncio.to_thread(self.close)
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()


def _address(base_url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """Where to go, and the key that belongs there."""
    env = os.environ
    key = api_key or env.get("FLIDE_API_KEY")
    url = base_url or env.get("FLIDE_BASE_URL")
    if not url and (url := env.get("TYPESAFE_BASE_URL")):
        key = api_key or env.get("TYPESAFE_API_KEY") or key
    if not url:
        raise InvalidInput(
            "no server is known: give Client its base_url, set FLIDE_BASE_URL, or take an engine "
            "of this process with Client.local."
        )
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidInput(f"{url!r} is no address of a server: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput(f"{url!r} is no address of a server, such as http://localhost:8000.")
    if key and not (key.isascii() and key.isprintable()):
        raise InvalidInput("the API key holds what a header cannot: copy it again.")
    return url.rstrip("/"), key


def _authorization(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _check_tenant(tenant: str | None) -> None:
    if tenant is not None:
        raise InvalidInput(
            f"the tenant {tenant!r} was given, but over HTTP it is that of the API key: leave it "
            "out."
        )
