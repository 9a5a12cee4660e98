"""A session outlives the process that served it: through Redis another one goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flide_agent import Client, InvalidInput, Noul, Policy, Rule
from flide_agent.runtime import Runtime
from flide_agent.runtime.local import LocalTransport
from flide_agent.runtime.memory import SessionMemory
from flide_agent.runtime.tiers import open_tiers
from flide_engine.engine import Engine
from tests.cache.server import RedisServer
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = b"of sixteen bytes at the least"
ASKED = {"done": Noul(instructions="Is it done?")}
STEPS = [
    f"Step {n}: the agent read a file of some length, and thought about it. " * 6 for n in range(9)
]
ROOT = Path(__file__).parents[2]

PROCESS = """
import json, os, sys, time
sys.path.insert(0, {root!r})
from tests.tiers.test_moving import serve
serve({model!r}, {url!r}, {count})
"""


def serve(model: str, url: str, count: int) -> None:
    """One process: replays a session's history, reports every step, and waits to be killed."""
    opened = open_tiers(redis_url=url, secret=SECRET)
    assert opened is not None
    engine = Engine.from_pretrained(model, dtype="float64", tiers=opened.tiers)
    client = Client.local(engine)
    session = client.session("agent-7")
    for step in range(count - 3, count):
        answers = session.ask(ASKED, messages=STEPS[: step + 1])
        info = answers.session
        engine._serving._lower._offering.submit(lambda: None).result()  # type: ignore[union-attr]
        opened.tiers.store.flush()
        print(
            json.dumps(
                [answers["done"].noul, info.tokens, info.reused_tokens, info.source, info.choice]  # type: ignore[union-attr]
            ),
            flush=True,
        )
    sys.stdin.read()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """An empty server."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random hybrid."""
    return chat_model(tmp_path_factory.mktemp("hybrid"), "qwen3_5", "tied")


def steps(model: Path, url: str, count: int) -> list[list[Any]]:
    """What a process said of three steps, before it was killed."""
    code = PROCESS.format(root=str(ROOT), model=str(model), url=url, count=count)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = [json.loads(process.stdout.readline()) for _ in range(3)]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return said


def test_killed_and_started_again(model: Path, server: RedisServer) -> None:
    """The history down to its last multiple of 256 is reused, and answers are the same."""
    steps(model, server.url, 6)
    after = steps(model, server.url, 9)
    with Engine.from_pretrained(model, dtype="float64") as fresh:
        for number, (noul, _, reused, source, _) in enumerate(after, 6):
            text = "".join(STEPS[: number + 1])
            expected = fresh.decide(text, ASKED, tenant=f"{number}").answers["done"].noul  # type: ignore[union-attr]

            assert noul == pytest.approx(expected, abs=1e-10)
            if number == 6:
                held = fresh.plan("".join(STEPS[:6]), ASKED).durable
                assert held is not None
                assert source == "redis"
                assert reused >= 0.97 * ((held - 8) // 256 * 256)


def test_redis_that_is_down_is_no_stop(model: Path, server: RedisServer) -> None:
    """A warning at most: everything is computed."""
    server.kill()
    try:
        opened = open_tiers(redis_url=server.url, secret=SECRET)
        assert opened is not None
        with opened as tiers, Engine.from_pretrained(model, tiers=tiers) as engine:
            assert engine.decide(STEPS[0], ASKED).reuse.reused_tokens == 0
    finally:
        server.start()


def test_settings_that_cannot_be() -> None:
    """A secret is needed, and long enough; a password is never shown."""
    with pytest.raises(InvalidInput, match="FLIDE_SECRET"):
        open_tiers(redis_url="redis://localhost")
    with pytest.raises(InvalidInput, match="4 bytes"):
        open_tiers(redis_url="redis://localhost", secret=b"abcd")
    with pytest.raises(InvalidInput) as caught:
        open_tiers(redis_url="http://user:hunter2@localhost", secret=SECRET)
    assert "hunter2" not in str(caught.value)
    assert open_tiers() is None


def test_decisions_outlive_the_process(model: Path, server: RedisServer) -> None:
    """A repeated step is not asked again, bands hold, and "last" is where it was."""
    question = {"q": Noul(instructions="Is it done?")}
    call = {"tool": "x", "arguments": {}}
    policy = Policy(rules=[Rule("q", question["q"], review=0.0, release=0.0)], timeout=60)
    replies = []
    for _ in range(2):
        opened = open_tiers(redis_url=server.url, secret=SECRET)
        assert opened is not None
        with opened as tiers, Engine.from_pretrained(model, tiers=tiers) as engine:
            runtime = Runtime(engine, memory=SessionMemory(opened.records))
            with Client(transport=LocalTransport(runtime, owns_engine=False)) as client:
                session = client.session("decided")
                session.sync(STEPS[:3])
                replies.append(session.decide(policy, state=call, key="step 3"))
                bands = runtime._sessions.get("", "decided").bands
    first, again = replies

    assert (first.replayed, again.replayed) == (False, True)
    assert again.id == first.id
    assert bands == {("", policy.digest): {"q": "review"}}
