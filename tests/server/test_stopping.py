"""SIGTERM in the middle of a crowd, and another server that goes on where it stopped."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING

import aiohttp

from flide_agent import Client, SystemOneResponse
from flide_cache.policy import STRIDE
from flide_engine.engine import Engine
from flide_engine.marks import MARGIN
from tests.agent.sessions.conftest import numbers
from tests.cache.server import RedisServer
from tests.server.conftest import ASKED, body
from tests.server.crowd import LONG, check_answers, figures
from tests.server.test_serve import Process
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "of sixteen bytes at the least"
CLIENTS = 12
TEXT = "An agent read a file of some length, and thought about what it said. "


class Answered:
    """Clients that ask until nobody is there.

    Attributes:
        replies: a text that was asked about, and the numbers of the answer.
        ended: clients that found nobody there.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.replies: list[tuple[str, list[float]]] = []
        self.ended = 0

    async def come(self, served: Process) -> tuple[int, str]:
        """All of them; the server is told to stop in their middle."""
        stopping = asyncio.create_task(asyncio.to_thread(self._stop, served))
        await asyncio.gather(*(self._ask(number) for number in range(CLIENTS)))
        return await stopping

    def _stop(self, served: Process) -> tuple[int, str]:
        while (
            len(self.replies) < CLIENTS
            or figures(self._url)["flide_requests_in_hand"] < CLIENTS / 4
        ):
            time.sleep(0.02)
        return served.end()

    async def _ask(self, number: int) -> None:
        text = f"Client {number}. " + TEXT * 4
        timeout = aiohttp.ClientTimeout(LONG)
        async with aiohttp.ClientSession(self._url, timeout=timeout) as http:
            while True:
                text += TEXT * random.randint(1, 3)
                sent = body(text, session_id=f"client {number}")
                try:
                    async with http.post("/v1/systemone", json=sent) as reply:
                        content = await reply.json()
                except aiohttp.ClientConnectionError:
                    self.ended += 1
                    return
                assert reply.status == 200, content
                self.replies.append((text, numbers(SystemOneResponse.model_validate(content))))


def test_sigterm(tmp_path: Path) -> None:
    """What was taken in hand is answered, right, and its checkpoints serve the next server."""
    model = chat_model(tmp_path / "model", "qwen3_5", "tied")
    options = ("--model", model, "--dtype", "float64", "--timeout", LONG)
    with RedisServer(tmp_path) as redis:
        with Process(*options, "--redis", redis.url, FLIDE_SECRET=SECRET) as served:
            crowd = Answered(served.url)
            status, said = asyncio.run(crowd.come(served))
        assert status == 0, said
        assert crowd.ended == CLIENTS
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        asked = [line["status"] for line in lines if line["route"] == "/v1/systemone"]
        # The server's own list: none of those that it let in went without their answer.
        assert asked == [200] * len(crowd.replies)
        newest = {text.split(".")[0]: text for text, _ in crowd.replies}
        with Engine.from_pretrained(model, dtype="float64") as fresh:
            check_answers(crowd.replies, fresh)
            ends = {name: boundary(fresh, text) for name, text in newest.items()}

        with (
            Process(*options, "--redis", redis.url, FLIDE_SECRET=SECRET) as served,
            Client(served.url, timeout=LONG) as client,
        ):
            reused = 0
            for name, text in newest.items():
                answers = client.session(name).ask(ASKED, messages=[text, TEXT])
                reused += answers.session.reused_tokens >= ends[name]
            assert served.end()[0] == 0
    # A load may be late where the machine is busy: then it is computed.
    assert reused > 0.7 * CLIENTS


def boundary(engine: Engine, text: str) -> int:
    """The last place of a history at which lower tiers keep a checkpoint."""
    durable = engine.plan(text, ASKED).durable
    assert durable is not None
    return (durable - MARGIN) // STRIDE * STRIDE
