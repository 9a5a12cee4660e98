"""`flide-agent serve` as a process: it says when it is ready, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from flide_agent import Client
from flide_agent.cli import main
from tests.server.conftest import ASKED, body

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENT = 60.0

MAIN = "import sys; from flide_agent.cli import main; sys.exit(main())"


class Process:
    """A server of its own.

    Attributes:
        url: where it is.
        ready, curl: what it said when it was ready.
        rest: what it wrote to stdout after that, once it has ended.
    """

    def __init__(self, *args: object, **variables: str) -> None:
        command = [sys.executable, "-c", MAIN, "serve", "--port", "0", *map(str, args)]
        # A file takes all that is said: a pipe that nobody reads would hold the server up.
        file, said = tempfile.mkstemp()
        self._said = Path(said)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, text=True, env=os.environ | variables
        )
        os.close(file)
        assert self.process.stdout
        self.ready = self.process.stdout.readline()
        self.process.stdout.readline()
        self.curl = self.process.stdout.readline()
        self.url = self.ready.split()[-1] if self.ready else ""

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.communicate()
        self._said.unlink()

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Its exit status, and what it wrote to stderr."""
        self.process.send_signal(how)
        self.rest, _ = self.process.communicate(timeout=PATIENT)
        return self.process.returncode, self._said.read_text()


def test_ready_to_try(directory: Path, keys: Callable[..., Path]) -> None:
    """The command that is shown works as it stands; the log holds no text and no ids."""
    with Process("--model", directory, "--keys", keys(right="acme")) as served:
        assert served.ready.startswith(f"ready: {directory.name} at http://127.0.0.1:")
        done = subprocess.run(
            ["sh", "-c", served.curl],
            env={"FLIDE_API_KEY": "right", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            check=True,
            timeout=PATIENT,
        )
        assert set(json.loads(done.stdout)["answers"]) == {"refund"}
        with Client(served.url, api_key="right") as client:
            client.session("of a person").ask(ASKED, messages=["private"])
        status, said = served.end()
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert status == 0
    assert [line["status"] for line in lines] == [200, 200]
    assert lines[1]["route"] == "/v1/sessions/{session}/systemone"
    assert lines[1]["tenant"] == "acme"
    assert lines[1]["new_tokens"] > 0
    assert "person" not in said
    assert "private" not in said


def test_it_ends_after_what_is_in_hand(directory: Path) -> None:
    """SIGTERM: what was asked is answered, streams end, and the exit status is 0."""
    with Process("--model", directory) as served:
        long = body("x" * 7_000, questions={str(n): ASKED["which"] for n in range(30)})
        replies: list[httpx.Response] = []
        heard: list[str] = []

        def ask() -> None:
            replies.append(httpx.post(f"{served.url}/v1/systemone", json=long, timeout=PATIENT))

        def listen() -> None:
            asked = {"questions": ASKED}
            url = f"{served.url}/v1/sessions/s/watch"
            with httpx.stream("POST", url, json=asked, timeout=PATIENT) as stream:
                heard.extend(stream.iter_lines())

        threads = [threading.Thread(target=target) for target in (ask, listen)]
        for thread in threads:
            thread.start()
        ends = time.monotonic() + PATIENT
        while "flide_requests_in_hand 1.0" not in (text := metrics(served.url)):
            assert time.monotonic() < ends
            if replies:
                pytest.fail("it was answered too soon for this test")
        assert "flide_watches 1.0" in text
        status, said = served.end()
        for thread in threads:
            thread.join(PATIENT)
    assert status == 0, said
    assert [reply.status_code for reply in replies] == [200]
    assert heard[0] == "event: ready"


def metrics(url: str) -> str:
    """The server's figures."""
    return httpx.get(f"{url}/metrics").text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--host", "0.0.0.0"], "--no-auth"),
        (["--host", "::"], "--keys"),
        (["--port", "70000"], "--port"),
        (["--port", "x"], "--port"),
        (["--timeout", "0"], "--timeout"),
        (["--keys", "/nowhere"], "/nowhere"),
        (["--model", "/nowhere"], "/nowhere"),
        (["--redis", "redis://127.0.0.1"], "FLIDE_SECRET"),
        (["--host", "203.0.113.1", "--no-auth"], "203.0.113.1"),
    ],
)
def test_wrong_settings(
    directory: Path, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    """Are said in one line, with exit status 2."""
    try:
        status: Any = main(["serve", "--model", str(directory), "--port", "0", *args])
    except SystemExit as exited:
        status = exited.code
    assert status == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_port_that_is_taken(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is found out before the model is loaded."""
    with Process("--model", directory) as served:
        port = served.url.rpartition(":")[2]
        assert main(["serve", "--model", "/nowhere", "--port", port]) == 2
    assert port in capsys.readouterr().err
