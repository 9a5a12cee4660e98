"""A crowd of clients that go away at random, poison among their requests, and Redis stopped.

`make soak` runs the same with a thousand clients.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from flide_agent.runtime import Runtime
from flide_agent.runtime.memory import SessionMemory
from flide_agent.runtime.tiers import open_tiers
from flide_agent.server import Limits, Settings
from flide_engine.engine import Engine
from tests.cache.server import RedisServer
from tests.server.conftest import body, serving
from tests.server.crowd import LONG, Crowd, check_answers, figures
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tests.server.conftest import Served

CLIENTS = int(os.environ.get("FLIDE_SOAK_CLIENTS", "100"))
STEPS = 2
SECRET = b"of sixteen bytes at the least"
PATIENT = 60.0


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random hybrid: its checkpoints have states besides pages."""
    return chat_model(tmp_path_factory.mktemp("hybrid"), "qwen3_5", "tied")


@pytest.fixture(scope="module")
def fresh(hybrid: Path) -> Iterator[Engine]:
    """The same model, to be asked alone."""
    with Engine.from_pretrained(hybrid, dtype="float64") as engine:
        yield engine


class Loop:
    """Knows the event loop of a server.

    Args:
        app: that runs in it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.loop = asyncio.get_running_loop()
        await self._app(scope, receive, send)

    def tasks(self) -> int:
        """How many there are."""

        async def count() -> int:
            return len(asyncio.all_tasks())

        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(count(), self.loop).result(PATIENT)


@dataclass
class Place:
    """A server over Redis, with all that could leak."""

    served: Served
    engine: Engine
    runtime: Runtime
    redis: RedisServer
    loop: Loop

    def leftovers(self) -> dict[str, float]:
        """What must be nothing when nobody asks."""
        health, use = self.engine.health, self.engine.pool.use()
        told = figures(self.served)
        return {
            "waiting": health.waiting + health.running + health.waiting_tokens,
            "pins": use.pins,
            "in hand": told["flide_requests_in_hand"],
            "watches": told["flide_watches"],
        }

    def held(self) -> dict[str, int]:
        """What must be as it was before."""
        return {
            "tasks": self.loop.tasks(),
            "threads": threading.active_count(),
            "files": psutil.Process().num_fds(),
        }


@pytest.fixture
def place(hybrid: Path, tmp_path: Path) -> Iterator[Place]:
    """A server of its own, with little room on the device."""
    with ExitStack() as closing:
        redis = closing.enter_context(RedisServer(tmp_path))
        opened = open_tiers(redis_url=redis.url, secret=SECRET)
        assert opened is not None
        tiers = closing.enter_context(opened)
        engine = closing.enter_context(
            Engine.from_pretrained(hybrid, dtype="float64", pool_bytes=8 << 20, tiers=tiers)
        )
        runtime = Runtime(engine, memory=SessionMemory(opened.records))
        closing.callback(runtime.close)
        loops: list[Loop] = []

        def wrap(app: FastAPI) -> Loop:
            loops.append(Loop(app))
            return loops[0]

        # Fewer places than clients: some are told to come again.
        room = max(CLIENTS // 2, 40)
        settings = Settings(timeout=LONG, requests=room, limits=Limits(requests=room))
        served = closing.enter_context(serving(runtime, settings, wrap=wrap))
        yield Place(served, engine, runtime, redis, loops[0])


def wait_until(now: Callable[[], Any], expected: Any) -> None:
    """Wait for what will be, and tell what is instead."""
    ends = time.monotonic() + PATIENT
    while (found := now()) != expected:
        assert time.monotonic() < ends, (found, expected)
        time.sleep(0.05)


async def stop_and_start(redis: RedisServer, crowd: asyncio.Future[None]) -> int:
    """Redis hangs, dies and comes back empty for as long as there is a crowd; how often."""
    times = 0
    while not crowd.done():
        await asyncio.sleep(0.3)
        redis.pause()
        await asyncio.sleep(0.3)
        redis.resume()
        await asyncio.sleep(0.3)
        await asyncio.to_thread(redis.kill)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(redis.start)
        times += 1
    await crowd
    return times


def test_a_crowd(place: Place, fresh: Engine) -> None:
    """No wrong answer, nothing stuck, nothing left over, and the next one is served."""

    async def come(crowd: Crowd, clients: int) -> int:
        return await stop_and_start(place.redis, asyncio.ensure_future(crowd.come(clients, STEPS)))

    warm, crowd = Crowd(place.served.url), Crowd(place.served.url)
    asyncio.run(come(warm, 16))
    nothing = dict.fromkeys(place.leftovers(), 0)
    wait_until(place.leftovers, nothing)
    before = place.held()

    assert asyncio.run(come(crowd, CLIENTS)) >= 1

    wait_until(place.leftovers, nothing)
    wait_until(place.loop.tasks, before["tasks"])
    after = place.held()
    # Pools of threads and connections may have grown to what they may be.
    assert after["threads"] < before["threads"] + 10, (before, after)
    assert after["files"] < before["files"] + 10, (before, after)
    assert crowd.counts["gone"] > CLIENTS / 4
    assert crowd.counts["poisoned"] > CLIENTS / 12
    assert crowd.counts["529"] + crowd.counts["429"] > 0
    check_answers(warm.replies + crowd.replies, fresh)

    reply = place.served.http.post("/v1/systemone", json=body())
    assert reply.status_code == 200
    for number in range(1, CLIENTS, 2):
        place.served.http.delete(f"/v1/sessions/crowd-{number}")
    wait_until(lambda: place.runtime.sessions, 0)
    place.engine.forget()
    use = place.engine.pool.use()
    assert (use.pages, use.states, use.blocks, use.pins) == (0, 0, 0, 0)
