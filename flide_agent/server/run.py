"""An app on a socket, until it is told to stop."""

from __future__ import annotations

import ipaddress
import json
import signal
import socket
from typing import TYPE_CHECKING

import uvicorn

from flide_agent.exceptions import InvalidInput
from flide_agent.server.logs import logged
from flide_agent.server.protocol import Protocol

if TYPE_CHECKING:
    from fastapi import FastAPI

    from flide_agent.server.settings import Settings

_KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep a connection, so that it is they who close it, between requests."""


def bind(settings: Settings) -> socket.socket:
    """Take the address, so that a server that cannot have it says so before a model is loaded.

    Raises:
        InvalidInput: it is taken, is none, or lets everybody in.
    """
    host, port = settings.host, settings.port
    if settings.keys is None and not settings.no_auth and not _is_loopback(host):
        raise InvalidInput(
            f"{host} can be reached by other machines, and there are no API keys: give a file of "
            "them with --keys, or say --no-auth to let everybody in."
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"{host} is no address of this machine: {error}.") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise InvalidInput(
            f"port {port} of {host} cannot be taken ({error.strerror}): choose another with --port."
        ) from None
    return bound


def run(app: FastAPI, settings: Settings, bound: socket.socket, model: str) -> None:
    """Serve until SIGTERM or Ctrl-C; what is in hand is answered then."""
    server = _Server(app, settings, model)
    # The server takes signals while it runs and raises them again afterwards: a SIGTERM that was
    # heeded should not end the process with an error.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with logged(settings.access_log):
            server.run(sockets=[bound])
    finally:
        signal.signal(signal.SIGTERM, before)


class _Server(uvicorn.Server):
    """Says when it is ready, and ends streams before it waits for their connections."""

    def __init__(self, app: FastAPI, settings: Settings, model: str) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                access_log=False,
                http=Protocol,
                lifespan="on",
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=round(settings.drain),
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                ws="none",
            )
        )
        self._streams = app.state.streams
        self._settings = settings
        self._model = model

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            print(_ready(self._settings, self._model, host, port), flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.close()
        await super().shutdown(sockets)


def _ready(settings: Settings, model: str, host: str, port: int) -> str:
    """A line that says where, and a command to try it."""
    shown = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
    root = f"http://{shown}:{port}"
    example = {
        "model": "jev-latest",
        "state": "My invoice was charged twice.",
        "questions": {"refund": {"type": "noul", "instructions": "Is money wanted back?"}},
    }
    key = "" if settings.keys is None else ' -H "authorization: Bearer $FLIDE_API_KEY"'
    send = f"-H 'content-type: application/json'{key} -d '{json.dumps(example)}'"
    return f"ready: {model} at {root}\n\ncurl {root}/v1/systemone {send}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
