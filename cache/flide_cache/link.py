"""A Redis server (or Valkey) as this package speaks to it.

Only commands on one key, sent in windows; each window ends in time or fails. What redis-py does by
default and what hurts here is set otherwise: ten retries of up to a second, timeouts of five, and a
packer that copies each megabyte of value once more.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from flide_cache.breaker import Breaker
from flide_cache.errors import Full, Late, Paused, Refused, StoreError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self, TypeAlias

    Command: TypeAlias = tuple[str | bytes | int, ...]

try:
    import hiredis  # noqa: F401  redis-py then parses with it
    import redis
    from redis.backoff import ExponentialWithJitterBackoff
    from redis.connection import DefaultParser, PythonRespSerializer
    from redis.exceptions import AuthorizationError, NoPermissionError
    from redis.maint_notifications import MaintNotificationsConfig
    from redis.retry import Retry
except ImportError as error:
    raise ImportError(
        "The Redis tier needs redis and hiredis, which are not installed: run pip install "
        "'flide-agent[redis]'."
    ) from error

log = logging.getLogger("flide_cache")

TIMEOUT = 0.25
"""Seconds for a connection, and for a window without its bytes."""

BYTES_PER_SECOND = 100e6
"""For the bytes of a window: what is slower is not worth waiting for."""

FULL_PAUSE = 30.0
_WINDOWS = 4
_READ_SIZE = 256 << 10
_PACKED_BYTES = 6_000
"""Longer arguments are sent as they are: only then does Redis read them straight into place."""

_REPLIES: dict[str | bytes | int, Any] = {
    "GET": bytes | None,
    "PTTL": int,
    "SCAN": list | tuple,
}
"""What comes back for a command, where it is used."""

_limit = threading.local()


class _TimedParser(DefaultParser):  # type: ignore[misc, valid-type]
    """Holds a whole reply to the limit of its window, not each receive to a timeout of its own."""

    def read_from_socket(self, timeout: Any = None, raise_on_timeout: bool = True) -> bool:
        left = getattr(_limit, "until", math.inf) - time.monotonic()
        if left <= 0:
            raise TimeoutError("the window is over")
        wait = None if left == math.inf else left
        return bool(super().read_from_socket(wait, raise_on_timeout))


class RedisLink:
    """Reads and writes, each with connections and a breaker of its own.

    A server that is down now is a warning: it may come up later. Its user needs `+get +set +pttl
    +expire +unlink +scan +ping` on `~fc1:*`. It is best a server of its own, without persistence,
    with `maxmemory-policy allkeys-lru` and `client-output-buffer-limit normal 64mb 32mb 10`.

    Args:
        url: redis://user:password@host:port/db, or rediss:// with `ssl_ca_certs` and other `ssl_`
            options as its query.
        timeout: seconds that a connection may take, and a window without its bytes.
        pause: seconds that a breaker stays open at first.

    Raises:
        ValueError: the url cannot be read.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT, pause: float = 5.0) -> None:
        self.address = _address(url)
        backoff = ExponentialWithJitterBackoff(base=0.01, cap=0.1)
        again = Retry(backoff, 1, (redis.ConnectionError,))
        never = Retry(backoff, 0, (redis.ConnectionError,))
        reader, writer = _client(url, timeout, again), _client(url, timeout, never)
        self.reads = _Way(self.address, reader, timeout, Breaker(pause=pause))
        self.writes = _Way(self.address, writer, timeout, Breaker(pause=pause))
        try:
            self.reads.run([("PING",)])
        except StoreError as error:
            log.warning("Going on without Redis until it answers: %s", error)

    def names(self, prefix: str) -> Iterator[list[bytes]]:
        """All names that begin with a prefix, some at a time; raises as `run`."""
        cursor = 0
        while True:
            command = ("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", 1000)
            ((cursor, names),) = self.writes.run([command])
            yield names
            if not cursor:
                return

    def close(self) -> None:
        """Close all connections."""
        self.reads.close()
        self.writes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RedisLink({self.address})"


class _Way:
    """One direction: its connections, its breaker, and how many windows may be open at a time."""

    def __init__(self, address: str, client: redis.Redis, timeout: float, breaker: Breaker) -> None:
        self.timeout = timeout
        self.breaker = breaker
        self._address = address
        self._client = client
        self._open = threading.BoundedSemaphore(_WINDOWS)

    def run(
        self, commands: Sequence[Command], *, nbytes: int = 0, deadline: float = math.inf
    ) -> list[Any]:
        """One window of commands, and their replies.

        Args:
            nbytes: that it moves, for the time that it may take.

        Raises:
            Late: the deadline came before it was this window's turn.
            Paused, Unreachable, Full, Refused: as they are.
        """
        left = deadline - time.monotonic()
        if left <= 0 or not self._open.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            raise Late("the deadline passed before Redis was asked")
        try:
            self.breaker.check()
            allowed = time.monotonic() + self.timeout + nbytes / BYTES_PER_SECOND
            _limit.until = min(deadline, allowed)
            replies = self._send(commands)
        except Paused:
            raise
        except Exception as error:
            failure, pause = self._meaning(error)
            self.breaker.failed(pause=pause)
            raise failure from error
        finally:
            self._open.release()
        self.breaker.succeeded()
        return replies

    def _send(self, commands: Sequence[Command]) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            replies: list[Any] = pipeline.execute(raise_on_error=False)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, redis.RedisError):
                raise reply
            if not isinstance(reply, _REPLIES.get(command[0], object)):
                raise TypeError(f"a {type(reply).__name__} is no reply to {command[0]!r}")
        return replies

    def _meaning(self, error: Exception) -> tuple[StoreError, float | None]:
        """An error as one of ours, and how long to leave the server alone."""
        said = f"Redis at {self._address}: {error}"
        match error:
            case redis.OutOfMemoryError():
                return Full(said), FULL_PAUSE
            case redis.AuthenticationError() | AuthorizationError() | NoPermissionError():
                return Refused(said), self.breaker.longest
            case redis.ConnectionError() | redis.TimeoutError() | redis.InvalidResponse():
                return Unreachable(said), None
            case redis.RedisError():
                return Refused(said), None
            case _:
                # redis-py stumbles over replies of another kind than it expects: whatever spoke
                # there is no Redis, or out of step.
                self._client.connection_pool.disconnect(inuse_connections=False)
                return Unreachable(f"{said} ({type(error).__name__})"), None

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def _client(url: str, timeout: float, retry: Retry) -> redis.Redis:
    return redis.Redis.from_url(
        url,
        # Its greeting is read on every connect: over TLS redis-py takes session tickets that are
        # still unread for a connection out of order.
        protocol=3,
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
        driver_info=None,
        parser_class=_TimedParser,
        command_packer=_packer(),
        socket_connect_timeout=timeout,
        socket_timeout=timeout,
        socket_read_size=_READ_SIZE,
        retry=retry,
    )


def _packer() -> PythonRespSerializer:
    """Not hiredis' packer, which copies a megabyte of value into one string with its command."""
    return PythonRespSerializer(_PACKED_BYTES, _encode)


def _encode(argument: str | bytes | int) -> bytes:
    return argument if isinstance(argument, bytes) else str(argument).encode()


def _address(url: str) -> str:
    """Host and port of a url, which may be printed; its password may not.

    Raises:
        ValueError: it cannot be read, or asks for what this link does otherwise.
    """
    address, options = "", list[tuple[str, str]]()
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        options = parse_qsl(parts.query)
        if parts.scheme in ("redis", "rediss") and parts.hostname:
            address = f"{parts.hostname}:{parts.port or 6379}"
    if not address:
        raise ValueError(
            "the address of Redis cannot be read: write redis://user:password@host:port/0 or "
            "rediss://…, with %-escapes for what is not a letter or a digit."
        )
    for name, _ in options:
        if name != "db" and not name.startswith("ssl_"):
            raise ValueError(
                f"the address of Redis has the option {name!r}, and only 'db' and those that begin "
                "with 'ssl_' may be set: leave it out."
            )
    return address
