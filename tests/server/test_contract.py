"""The sessions' contract over HTTP: answers are the stateless ones on the session's text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from flide_agent import Client
from flide_agent.client.http import HttpTransport
from flide_agent.history import state_text
from flide_agent.runtime import Runtime
from flide_agent.server import Settings
from flide_engine.engine import Engine
from tests.agent.sessions.conftest import KINDS, Stage, numbers
from tests.agent.sessions.test_contract import SessionMachine
from tests.server.conftest import serving
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flide_agent import Session

PATIENT = 60.0
EXAMPLES = 6


class OverHttp(HttpTransport):
    """To a server whose key says whose the sessions are.

    Args:
        url: the server's.
        runtime: behind it.
    """

    def __init__(self, url: str, runtime: Runtime) -> None:
        super().__init__(url, "right")
        self.runtime = runtime

    def send(self, call: Any, *, tenant: str | None, timeout: float | None) -> Any:
        """Send it as that tenant."""
        return super().send(call, tenant=None, timeout=timeout)


@pytest.fixture(params=KINDS)
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, keys: Callable[..., Path]
) -> Iterator[Stage]:
    """A client of a server with little room, and the same model asked afresh."""
    directory = chat_model(tmp_path / "model", *KINDS[request.param])
    settings = Settings(timeout=PATIENT, keys=keys(right="one"))
    with (
        Engine.from_pretrained(directory, dtype="float64", pool_bytes=4 << 20) as engine,
        Engine.from_pretrained(directory, dtype="float64") as fresh,
    ):
        runtime = Runtime(engine)
        with (
            serving(runtime, settings) as served,
            Client(transport=OverHttp(served.url, runtime), timeout=PATIENT) as client,
        ):
            yield Stage(engine, client, fresh)
        runtime.close()


class HttpMachine(SessionMachine):
    """Whatever can be done to sessions, and the same asked without one."""

    def check(self, session: Session, got: list[float], questions: Any, state: Any) -> None:
        """As without a session on this server, and on one that has never read anything."""
        super().check(session, got, questions, state)
        whole = session.text + ("" if state is None else state_text(state))
        stateless = self.stage.client.system_one(whole, questions)
        assert got == pytest.approx(numbers(stateless), abs=1e-9, rel=0)


def test_session_equals_stateless(stage: Stage) -> None:
    """Any sequence of what sessions can do, and what can befall them."""

    class Machine(HttpMachine):
        pass

    Machine.stage = stage
    soak = settings.get_current_profile_name() == "soak"
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=1_000 if soak else EXAMPLES,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
