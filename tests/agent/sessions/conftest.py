"""Small engines that sessions run on, and the same model asked afresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from flide_agent import NoulAnswer
from flide_agent.client import Client
from flide_agent.runtime import to_response
from flide_engine.engine import Engine
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flide_agent import SystemOneResponse

KINDS = {"llama": ("llama", "tied"), "hybrid": ("qwen3_5", "tied")}


@dataclass
class Stage:
    """A client whose engine is in this process, and the truth about its answers."""

    engine: Engine
    client: Client
    fresh: Engine

    def stateless(self, text: str, questions: dict[str, Any]) -> list[float]:
        """The numbers of the answers on a text that is read from nothing."""
        self.fresh.pool.clear()
        return numbers(to_response(self.fresh.decide(text, questions), "fresh"))


def numbers(response: SystemOneResponse) -> list[float]:
    """All probabilities of a response, in order."""
    found: list[float] = []
    for answer in response.answers.values():
        if isinstance(answer, NoulAnswer):
            found += [answer.noul, 1 - answer.noul]
        else:
            found += answer.probabilities.values()
    return found


@pytest.fixture(scope="session", params=KINDS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random chat model of each family."""
    return chat_model(tmp_path_factory.mktemp(request.param), *KINDS[request.param])


@pytest.fixture(scope="session")
def engines(directory: Path) -> Iterator[tuple[Engine, Engine]]:
    """An engine in float64, and another one for answers read from nothing."""
    with (
        Engine.from_pretrained(directory, dtype="float64", pool_bytes=4 << 20) as engine,
        Engine.from_pretrained(directory, dtype="float64") as fresh,
    ):
        yield engine, fresh


@pytest.fixture
def stage(engines: tuple[Engine, Engine]) -> Iterator[Stage]:
    """A client of its own on the shared engines."""
    engine, fresh = engines
    engine.forget()
    with Client.local(engine) as client:
        yield Stage(engine, client, fresh)
