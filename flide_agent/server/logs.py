"""Log lines, written behind the requests: whoever reads them slowly holds nobody up."""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from flide_agent.server.edge import access_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 10_000
"""Lines that wait to be written; more are dropped, and counted."""

_LAST_SECONDS = 2.0
"""To write the rest when the server ends."""


class Behind(logging.Handler):
    """Has lines written in a thread.

    Args:
        write: writes one; it may take as long as it likes.
        most: lines that wait.
    """

    def __init__(self, write: Callable[[str], object], most: int = MOST) -> None:
        super().__init__()
        self._line = write
        self._dropped = 0
        self._waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(most)
        self._thread = threading.Thread(target=self._write, name="flide-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have a line written soon."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write what waits, for a moment."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_LAST_SECONDS)
            self._thread.join(_LAST_SECONDS)
        super().close()

    def _write(self) -> None:
        while (record := self._waiting.get()) is not None:
            try:
                self._line(self.format(record))
                dropped, self._dropped = self._dropped, 0
                if dropped:
                    self._line(self.format(_told(dropped)))
            except Exception:
                # There is nowhere to say that nothing can be said.
                self._dropped += 1


def _told(dropped: int) -> logging.LogRecord:
    said = "%d log lines were dropped: they came faster than they were read"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (dropped,), None)


def _to_stderr(line: str) -> None:
    """Write past Python's own buffer: its lock would let a stuck line hold the process's end up."""
    data = (line + "\n").encode(errors="backslashreplace")
    while data:
        data = data[os.write(sys.stderr.fileno(), data) :]


@contextmanager
def logged(requests: bool) -> Iterator[None]:
    """Log to stderr, requests too if they are wanted; as plain lines, since those are JSON."""
    lines, others = Behind(_to_stderr), Behind(_to_stderr)
    others.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    access_log.addHandler(lines)
    access_log.propagate = False
    access_log.setLevel(logging.INFO if requests else logging.WARNING)
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(others)
    try:
        yield
    finally:
        access_log.removeHandler(lines)
        root.removeHandler(others)
        lines.close()
        others.close()
