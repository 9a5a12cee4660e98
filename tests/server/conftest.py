"""A small engine behind real sockets."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from hypothesis import settings

from flide_agent.server import Settings, create_app
from flide_agent.server.keys import digest
from flide_agent.server.protocol import Protocol
from flide_engine.engine import Engine
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from fastapi import FastAPI
    from opentelemetry.trace import TracerProvider
    from starlette.types import ASGIApp

    from flide_agent.runtime import Runtime

settings.register_profile("soak", max_examples=10_000)

NOUL = {"type": "noul", "instructions": "Is it done?"}
CHOICE = {"type": "choice", "instructions": "Which one?", "criteria": {"a": None, "b": "the other"}}
SCORE = {"type": "score", "criteria": ["low", "middle", "high"]}
ASKED: dict[str, Any] = {"done": NOUL, "which": CHOICE, "how": SCORE}


def body(state: Any = "The build is red.", **changes: Any) -> dict[str, Any]:
    """A request that is in order."""
    return {"model": "jev-latest", "state": state, "questions": ASKED, **changes}


@dataclass
class Served:
    """A server, its address, and a plain client of it."""

    app: FastAPI
    url: str
    http: httpx.Client


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random chat model."""
    return chat_model(tmp_path_factory.mktemp("served"), "llama", "tied")


@pytest.fixture(scope="session")
def engine(directory: Path) -> Iterator[Engine]:
    """An engine in float64."""
    with Engine.from_pretrained(directory, dtype="float64", pool_bytes=8 << 20) as engine:
        engine.model_name = "tiny"
        yield engine


@contextmanager
def serving(
    served: Engine | Runtime,
    how: Settings,
    *,
    key: str = "",
    wrap: Callable[[FastAPI], ASGIApp] = lambda app: app,
    tracer_provider: TracerProvider | None = None,
) -> Iterator[Served]:
    """An app on a socket of its own, perhaps behind something else."""
    app = create_app(served, how, tracer_provider=tracer_provider)
    config = uvicorn.Config(
        wrap(app),
        http=Protocol,
        port=0,
        log_config=None,
        timeout_graceful_shutdown=5,
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=30) as http:
            yield Served(app, url, http)
    finally:
        app.state.streams.close()
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def served(engine: Engine) -> Iterator[Served]:
    """A server that everybody may use."""
    with serving(engine, Settings(timeout=30)) as served:
        yield served


@pytest.fixture
def serve(engine: Engine) -> Callable[..., AbstractContextManager[Served]]:
    """Makes servers with settings of their own."""

    def make(key: str = "", **changes: Any) -> AbstractContextManager[Served]:
        return serving(engine, Settings(**{"timeout": 30, **changes}), key=key)

    return make


@pytest.fixture
def keys(tmp_path: Path) -> Callable[..., Path]:
    """Makes a file of keys: `keys(key="tenant")`, or `keys(key=("tenant", {limits}))`."""

    def make(**tenants: Any) -> Path:
        entries = []
        for key, tenant in tenants.items():
            name, limits = tenant if isinstance(tenant, tuple) else (tenant, {})
            entries.append({"sha256": digest(key.encode()), "tenant": name, "limits": limits})
        path = tmp_path / "keys.json"
        path.write_text(json.dumps({"keys": entries}))
        return path

    return make
