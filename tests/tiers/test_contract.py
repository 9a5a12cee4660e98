"""The contract of sessions again, over a pool that is too small and a tier that fails at random."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from flide_agent.client import Client
from flide_cache import Admission, HostStore, RestoreModel, Speed, Tier, TieredStore
from flide_engine.engine import Engine
from flide_engine.lower import Tiers
from tests.agent.sessions.conftest import KINDS, Stage
from tests.agent.sessions.test_contract import SessionMachine
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from pathlib import Path

    from flide_agent.client import Session


WHIM = random.Random()
"""Hypothesis watches the random numbers that all share."""


class Faulty(HostStore):
    """Fails at every third turn, before or after it did something."""

    def _load(self, wants: Any, deadline: float, found: Any) -> None:
        whim = WHIM.random()
        if whim < 0.2:
            raise OSError("gone")
        super()._load(wants, deadline, found)
        if whim < 0.3:
            raise OSError("gone too late")

    def _offer(self, values: Any) -> str:
        if WHIM.random() < 0.2:
            raise OSError("full")
        return super()._offer(values)


class LongMachine(SessionMachine):
    """Histories long enough for checkpoints below the device."""

    @rule(session=SessionMachine.sessions, length=st.integers(250, 700))
    def append_much(self, session: Session, length: int) -> None:
        """And forget what the device holds."""
        if len(session.text) < 3_000:
            self.append_(session, ["of many words " * (length // 14)])
        self.stage.engine.forget()


@pytest.mark.parametrize("kind", KINDS)
def test_session_equals_stateless(kind: str, tmp_path: Path) -> None:
    """Whatever was done, and whichever tier held what."""
    directory = chat_model(tmp_path, *KINDS[kind])
    store = TieredStore([Tier(Faulty(1 << 20), Admission())])
    # So small a pool keeps one history, and loading always seems to pay.
    model = RestoreModel(1.0, {"host": Speed(1e-6, 1e12)})
    tiers = Tiers(store, model, b"sixteen bytes are enough")
    with (
        Engine.from_pretrained(directory, dtype="float64") as fresh,
        Engine.from_pretrained(
            directory, dtype="float64", tiers=tiers, pool_bytes=pool_bytes(fresh)
        ) as engine,
        Client.local(engine) as client,
    ):

        class Machine(LongMachine):
            stage = Stage(engine, client, fresh)

        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=20,
                stateful_step_count=20,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        engine.close()
        engine.pool.clear()
        use = engine.pool.use()

        assert (use.pages, use.states, use.pins) == (0, 0, 0)
        assert store.stats().counts["hits"] > 0
    store.close()


def pool_bytes(engine: Engine) -> int:
    """Room for 8,192 tokens, and a few states in place of some."""
    return 128 * engine.pool.page_bytes + 8 * engine.pool.state_bytes
