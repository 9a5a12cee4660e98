"""The public conformance suite of System One against real servers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from flide_agent.server import Settings
from flide_engine.engine import Engine
from tests.server.conftest import serving
from tests.support.models import random_model, save
from tests.support.vocabularies import qwen_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

    from tests.server.conftest import Served

SUITE = "import sys; from jevcompat.cli import main; sys.exit(main())"
ROOM = Settings(timeout=600)


class InOneSession:
    """Adds a session's id to every request, as a proxy would."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [*scope["headers"], (b"x-session-id", b"jevcompat")]
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A small random model whose vocabulary has labels for 255 options."""
    directory = tmp_path_factory.mktemp("roomy")
    tokenizer = qwen_tokenizer()
    tokenizer.save_pretrained(directory)
    model = random_model("qwen3_5", "tied")
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.max_position_embeddings = 1 << 16
    with Engine.from_pretrained(save(model, directory)) as engine:
        yield engine


def judge(served: Served, report: Path, *options: str) -> tuple[int, int]:
    """How many requirements the suite judged: those that must be kept, and those that should."""
    command = [sys.executable, "-c", SUITE, "test", served.url, "--json", str(report), *options]
    done = subprocess.run(
        [*command, "--timeout", "600"], capture_output=True, text=True, check=False
    )
    content: dict[str, Any] = json.loads(report.read_text())
    failed = {r["id"]: r["findings"] for r in content["results"] if r["status"] == "fail"}
    assert not failed
    assert not content["inconclusive"]
    assert done.returncode == 0, done.stdout
    passed = [r["level"] for r in content["results"] if r["status"] == "pass"]
    return passed.count("MUST"), passed.count("SHOULD")


def test_open(roomy: Engine, tmp_path: Path) -> None:
    """All 45 requirements that an open server is judged by."""
    with serving(roomy, ROOM) as served:
        assert judge(served, tmp_path / "report.json") == (32, 13)


def test_through_a_session(roomy: Engine, tmp_path: Path) -> None:
    """The same where every request names a session."""
    with serving(roomy, ROOM, wrap=InOneSession) as served:
        assert judge(served, tmp_path / "report.json") == (32, 13)
        held = served.http.get("/v1/sessions/jevcompat").json()
    assert held["heads"] > 5


def test_with_a_key_through_a_session(
    roomy: Engine, keys: Callable[..., Path], tmp_path: Path
) -> None:
    """All 47 that a server with keys is judged by, where every request names a session."""
    settings = ROOM.model_copy(update={"keys": keys(secret="acme")})
    with serving(roomy, settings, key="secret", wrap=InOneSession) as served:
        assert judge(served, tmp_path / "report.json", "--key", "secret") == (32, 15)
        held = served.http.get("/v1/sessions/jevcompat").json()
    assert held["heads"] > 5


def test_with_a_key(keys: Callable[..., Path], tmp_path: Path) -> None:
    """All 47 that a server with keys is judged by, on a model that can read."""
    settings = ROOM.model_copy(update={"keys": keys(secret="acme")})
    with (
        Engine.from_pretrained("smollm2") as engine,
        serving(engine, settings) as served,
    ):
        assert judge(served, tmp_path / "report.json", "--key", "secret") == (32, 15)
