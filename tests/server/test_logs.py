"""A log that nobody reads holds no request up."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import httpx

from flide_agent.server.logs import Behind
from tests.server.test_serve import MAIN

if TYPE_CHECKING:
    from pathlib import Path

PATIENT = 20.0
PIPE = 64 << 10
"""Bytes that a pipe holds, here."""


def test_what_waits_is_bounded() -> None:
    """Lines that are too many are dropped and counted; the others are written in order."""
    free = threading.Event()
    lines: list[str] = []

    def write(line: str) -> None:
        assert free.wait(PATIENT)
        lines.append(line)

    behind = Behind(write, most=10)
    log = logging.Logger("test")
    log.addHandler(behind)
    for number in range(100):
        log.warning("%d", number)
    free.set()
    behind.close()
    numbers = [int(line) for line in lines if line.isdecimal()]
    (told,) = [line for line in lines if not line.isdecimal()]
    assert numbers == list(range(len(numbers)))
    assert 10 <= len(numbers) <= 11
    assert told.startswith(f"{100 - len(numbers)} log lines were dropped")


def test_a_pipe_that_nobody_reads(directory: Path) -> None:
    """Every request is answered, and the server ends with status 0."""
    command = [sys.executable, "-c", MAIN, "serve", "--port", "0", "--model", str(directory)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            url = process.stdout.readline().split()[-1]
            with httpx.Client(base_url=url, timeout=PATIENT) as http:
                # A line has more than 110 bytes, so these are more than the pipe holds.
                for _ in range(5 * PIPE // 4 // 110):
                    assert http.get("/health").status_code == 200
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENT) == 0
        finally:
            process.kill()
