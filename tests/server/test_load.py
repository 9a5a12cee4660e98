"""More than the server can take, clients that go away, and requests out of time."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from flide_agent.server import Settings
from tests.server.conftest import body, serving
from tests.server.held import PATIENT, Held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flide_engine.engine import Engine
    from tests.server.conftest import Served


@pytest.fixture
def held(engine: Engine) -> Iterator[Held]:
    """A runtime that holds requests up."""
    runtime = Held(engine)
    yield runtime
    runtime.close()


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that will be."""
    ends = time.monotonic() + PATIENT
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.005)


def in_hand(served: Served) -> int:
    """Requests that the server has let in."""
    return int(served.app.state.desk.admission.in_hand)


def test_too_many_of_all(held: Held) -> None:
    """529 with a time to wait; when one is answered there is room again."""
    with serving(held, Settings(requests=2, timeout=30)) as served, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(served.http.post, "/v1/systemone", json=body()) for _ in range(2)]
        held.wait_for(2)
        refused = served.http.post("/v1/systemone", json=body())
        assert refused.status_code == 529
        assert refused.json()["detail"]["error_type"] == "overloaded_error"
        assert 100 <= int(refused.headers["retry-after-ms"]) <= 5_000
        held.waiting[0].set_exception(ValueError("a fault of the engine"))
        held.waiting[1].cancel()
        assert sorted(job.result().status_code for job in jobs) == [500, 503]
        wait_until(lambda: in_hand(served) == 0)


def test_too_many_of_one(held: Held, keys: Callable[..., Path]) -> None:
    """429 for the tenant that has too many in hand; another one is let in."""
    path = keys(one=("acme", {"requests": 1}), two="other")
    settings = Settings(keys=path, timeout=30)
    with serving(held, settings) as served, ThreadPoolExecutor(2) as pool:

        def ask(key: str) -> httpx.Response:
            headers = {"authorization": f"Bearer {key}"}
            return served.http.post("/v1/systemone", json=body(), headers=headers)

        first = pool.submit(ask, "one")
        held.wait_for(1)
        refused = ask("one")
        other = pool.submit(ask, "two")
        held.wait_for(2)
        assert refused.status_code == 429
        assert refused.json()["detail"]["error_type"] == "rate_limit_error"
        assert refused.headers["retry-after-ms"]
        for promise in held.waiting:
            promise.cancel()
        first.result()
        other.result()


def test_out_of_time(held: Held) -> None:
    """The server says so before its clients give up, and the work is given up too."""
    with serving(held, Settings(timeout=0.2)) as served:
        response = served.http.post("/v1/systemone", json=body())
        assert response.status_code == 529
        assert response.json()["detail"]["error_type"] == "timeout_error"
        assert held.waiting[0].cancelled()

        began = time.monotonic()
        headers = {"x-flide-timeout-ms": "50"}
        quick = served.http.post("/v1/systemone", json=body(), headers=headers)
        assert quick.status_code == 529
        assert time.monotonic() - began < 0.19
        for value in ("0", "soon", "-1", "9" * 30, "1.5"):
            headers = {"x-flide-timeout-ms": value}
            wrong = served.http.post("/v1/systemone", json=body(), headers=headers)
            assert wrong.status_code == 422


def test_clients_that_go_away(held: Held) -> None:
    """Their work is cancelled, and nothing of them stays in hand."""
    with serving(held, Settings(timeout=30)) as served:

        async def go_away() -> None:
            async with httpx.AsyncClient(base_url=served.url) as http:
                tasks = [
                    asyncio.create_task(http.post("/v1/systemone", json=body())) for _ in range(20)
                ]
                await asyncio.to_thread(held.wait_for, 20)
                assert in_hand(served) == 20
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run(go_away())
        wait_until(lambda: in_hand(served) == 0)
        wait_until(lambda: all(promise.cancelled() for promise in held.waiting))


def test_bodies_that_never_end(held: Held) -> None:
    """A client that stops sending holds its place only for its time."""
    with serving(held, Settings(timeout=0.2)) as served:

        def slowly() -> Iterator[bytes]:
            yield b"{"
            time.sleep(0.5)
            yield b"}"

        response = served.http.post("/v1/systemone", content=slowly())
        assert response.status_code == 529
        assert in_hand(served) == 0


def test_a_dead_engine_is_told(directory: Path) -> None:
    """By /health, and by 503 on every question."""
    from flide_engine.engine import Engine

    engine = Engine.from_pretrained(directory)
    with serving(engine, Settings()) as served:
        assert served.http.get("/health").status_code == 200
        engine.close()
        assert served.http.get("/health").status_code == 503
        response = served.http.post("/v1/systemone", json=body())
        assert response.status_code == 503
        assert response.json()["detail"]["error_type"] == "engine_unavailable"


def test_many_at_once(served: Served) -> None:
    """Clients that come and go at random; those that stay get their own answers."""
    states = [f"State number {n}. " * (1 + n % 7) for n in range(60)]

    async def ask() -> list[Any]:
        async with httpx.AsyncClient(base_url=served.url, timeout=PATIENT) as http:
            tasks = [
                asyncio.create_task(http.post("/v1/systemone", json=body(state)))
                for state in states
            ]
            for number, task in enumerate(tasks):
                if number % 3 == 0:
                    await asyncio.sleep(0.002)
                    task.cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

    replies = asyncio.run(ask())
    for state, reply in zip(states, replies, strict=True):
        if isinstance(reply, asyncio.CancelledError):
            continue
        alone = served.http.post("/v1/systemone", json=body(state)).json()
        given = reply.json()["answers"]["done"]["noul"]
        assert given == pytest.approx(alone["answers"]["done"]["noul"], abs=1e-9)
    wait_until(lambda: in_hand(served) == 0)
