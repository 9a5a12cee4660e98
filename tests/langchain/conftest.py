"""A small random engine in this process, and the same model asked afresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from flide_agent import Client, NoulAnswer
from flide_agent.history import messages_to_history
from flide_agent.runtime import to_response
from flide_agent.runtime.local import open_local
from flide_engine.engine import Engine
from langchain_flide import SessionResponse
from tests.langchain.agents import ran
from tests.langchain.watching import WATCH, Watched
from tests.support.chat import chat_model

# Its asserts are those of the tests that derive from it.
pytest.register_assert_rewrite("tests.langchain.conformance")

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


class Listener(BaseCallbackHandler):
    """Hears what decision models answer.

    Attributes:
        responses: in order.
    """

    def __init__(self) -> None:
        self.responses: list[SessionResponse] = []

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        """Keep what a decision model answered."""
        if isinstance(outputs, SessionResponse):
            self.responses.append(outputs)


@dataclass
class House:
    """A client whose engine is in this process, and the truth about its answers."""

    engine: Engine
    client: Client
    fresh: Engine

    def stateless(
        self, messages: Sequence[Any], questions: Mapping[str, Any], local: Any = None
    ) -> list[float]:
        """The numbers of the answers about a history that is read from nothing."""
        turns = messages_to_history(messages)
        turns += [] if local is None else messages_to_history([local])
        self.fresh.pool.clear()
        text = "".join(turn.text for turn in turns)
        return numbers(to_response(self.fresh.decide(text, dict(questions)), "fresh"))


def numbers(response: Any) -> list[float]:
    """All probabilities of a response, ours or LangChain's."""
    found: list[float] = []
    for answer in response.answers.values():
        noul = isinstance(answer, NoulAnswer) or answer.type == "noul"
        found += [answer.noul] if noul else answer.probabilities.values()
    return found


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, Engine]]:
    """An engine in float64, and another one for answers read from nothing."""
    directory: Path = chat_model(tmp_path_factory.mktemp("llama"), "llama", "tied")
    with (
        Engine.from_pretrained(directory, dtype="float64") as engine,
        Engine.from_pretrained(directory, dtype="float64") as fresh,
    ):
        yield engine, fresh


@pytest.fixture
def house(engines: tuple[Engine, Engine]) -> Iterator[House]:
    """A client of its own on the shared engines."""
    engine, fresh = engines
    engine.pool.clear()
    with Client.local(engine, eager=False) as client:
        yield House(engine, client, fresh)


@pytest.fixture
def watched(house: House) -> Iterator[Watched]:
    """Compares every answer with the truth in the end."""
    transport = Watched(open_local(house.engine, eager=False))
    yield transport
    assert transport.replies
    for number, (_, call, reply) in enumerate(transport.replies):
        truth = house.stateless(transport.turns(number), WATCH.questions(), call.request.state)
        assert numbers(reply) == pytest.approx(truth, abs=1e-9)
    transport.close()


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()
