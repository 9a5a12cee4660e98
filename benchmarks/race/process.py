"""A server as a process: started, waited for, weighed and stopped."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from benchmarks.race.contenders import Setting

_PATIENCE = 420.0
"""Seconds to a first answer, after which a server is given up."""

_STOPPING = 40.0

_MIB = 2**20


class NoServer(Exception):
    """A server did not come up, or went down."""


class Server:
    """A setting's process; also a context manager, which stops it.

    Args:
        setting: what to start.
        log: where what it says goes.
    """

    def __init__(self, setting: Setting, log: Path) -> None:
        self._setting = setting
        self._log = log
        self._began = time.perf_counter()
        self._process: subprocess.Popen[bytes] | None = None
        if setting.command is not None:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    setting.command, env=dict(setting.environment), stdout=output, stderr=output
                )

    def first_answer(self, body: bytes) -> float:
        """Seconds from the start of the process to its answer to a request.

        Raises:
            NoServer: there is none.
        """
        request = urllib.request.Request(
            f"{self._setting.url}/v1/systemone", body, {"content-type": "application/json"}
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=_PATIENCE) as reply:
                    reply.read()
                    return time.perf_counter() - self._began
            except urllib.error.HTTPError as error:
                # One that is loading may say so; another that refuses will not change its mind.
                refused = error.code < 500 and error.code != 429
                said = f"HTTP {error.code}: {error.read(300)!r}"
            except OSError as error:
                refused, said = False, str(error)
            waited = time.perf_counter() - self._began
            if refused or waited > _PATIENCE or not self.runs:
                raise NoServer(f"there was no answer in {waited:.0f} s ({said}); {self._told()}")
            time.sleep(0.05)

    @property
    def runs(self) -> bool:
        """Whether its process does."""
        return self._process is None or self._process.poll() is None

    def memory(self) -> dict[str, float]:
        """MiB that its processes hold, each page counted once, and that the GPU holds."""
        found = {}
        if self._process is not None:
            whole = psutil.Process(self._process.pid)
            processes = [whole, *whole.children(recursive=True)]
            found["host_mib"] = round(sum(p.memory_full_info().pss for p in processes) / _MIB)
        try:
            told = subprocess.run(
                ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
        except (FileNotFoundError, subprocess.CalledProcessError):
            return found
        return found | {"gpu_mib": float(told.stdout.splitlines()[0])}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is None or not self.runs:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.terminate()
        try:
            self._process.wait(_STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # What it leaves behind would hold the GPU's memory.
        for child in psutil.wait_procs(children, timeout=5)[1]:
            child.kill()

    def _told(self) -> str:
        if self._process is None:
            return "nothing was started here."
        lines = self._log.read_text(errors="replace").splitlines()
        return "it said last:\n" + "\n".join(lines[-20:])
