"""A TCP proxy that does to bytes what networks do: delay, throttle, cut, corrupt and stall them.

What happens to a chunk on its way is a function: it may sleep, gives the bytes to pass on, and cuts
the connection by giving None. Two of them, `up` to the server and `down` to the client, may be
replaced at any time, also for connections that are open.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from typing import Self, TypeAlias

    Way: TypeAlias = Callable[[bytes], bytes | None]


def clear(chunk: bytes) -> bytes:
    """As a good network does."""
    return chunk


def delayed(least: float, most: float) -> Way:
    """Each chunk some seconds late."""

    def way(chunk: bytes) -> bytes:
        time.sleep(random.uniform(least, most))
        return chunk

    return way


def throttled(bytes_per_second: float) -> Way:
    """Each chunk takes its time."""

    def way(chunk: bytes) -> bytes:
        time.sleep(len(chunk) / bytes_per_second)
        return chunk

    return way


def cut_after(nbytes: int) -> Way:
    """So many bytes pass, over all connections; then each is cut in the middle of a chunk."""
    left = nbytes
    lock = threading.Lock()

    def way(chunk: bytes) -> bytes | None:
        nonlocal left
        with lock:
            passed, left = chunk[: max(left, 0)], left - len(chunk)
        return passed if len(passed) == len(chunk) else None

    return way


def flipping(share: float) -> Way:
    """In this share of the chunks one bit flips."""

    def way(chunk: bytes) -> bytes:
        if random.random() >= share:
            return chunk
        harmed = bytearray(chunk)
        harmed[random.randrange(len(harmed))] ^= 1 << random.randrange(8)
        return bytes(harmed)

    return way


def answering(answer: bytes) -> Way:
    """This instead of whatever the server says."""
    return lambda chunk: answer


class Proxy:
    """Listens on a free port of this machine and passes connections on to a server's.

    Args:
        port: of the server.
        tls: what to speak to clients; None for plain TCP. The server always gets plain TCP.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.up: Way = clear
        self.down: Way = clear
        self.chunk = 64 << 10
        self._server = port
        self._tls = tls
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'redis' if self._tls is None else 'rediss'}://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Cut everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def cut(self) -> None:
        """Cut all open connections."""
        for connection in list(self._sockets):
            _end(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            server = socket.create_connection(("127.0.0.1", self._server))
        except OSError:
            client.close()
            return
        with client, server:
            self._sockets |= {client, server}
            back = threading.Thread(
                target=self._pass_on, args=(server, client, lambda chunk: self.down(chunk))
            )
            back.start()
            self._pass_on(client, server, lambda chunk: self.up(chunk))
            back.join()
            self._sockets -= {client, server}

    def _pass_on(self, source: socket.socket, target: socket.socket, way: Way) -> None:
        with suppress(OSError):
            while chunk := source.recv(self.chunk):
                passed = way(chunk)
                if passed is None:
                    break
                target.sendall(passed)
        _end(source)
        _end(target)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
