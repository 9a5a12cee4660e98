"""The contract of sessions again: a pool that is too small, both tiers, restarts, and all faults.

With `FLIDE_SOAK_OPERATIONS=100000` in the environment it takes hours instead of seconds, and a file
that `FLIDE_SOAK_LOG` names tells how far it is.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from tests.agent.sessions.test_contract import SessionMachine
from tests.cache.server import programs
from tests.support.chat import chat_model
from tests.tiers.world import FAULTS, WHIM, World

if TYPE_CHECKING:
    from flide_agent.client import Session

KINDS = {"llama": ("llama", "rope_scaling"), "hybrid": ("qwen3_5", "linear_last")}
STEPS = 25
LONGEST = 1_800
"""Characters of a history, which are about as many tokens."""

OPERATIONS = int(os.environ.get("FLIDE_SOAK_OPERATIONS", "0")) // len(KINDS) or 350
LOG = os.environ.get("FLIDE_SOAK_LOG")


class WorldMachine(SessionMachine):
    """Histories long enough for checkpoints below the device, and what can befall those."""

    world: ClassVar[World]
    operations: ClassVar[Counter[str]]

    @rule(session=SessionMachine.sessions, length=st.integers(250, 700))
    def append_much(self, session: Session, length: int) -> None:
        """And forget what the device holds."""
        if len(session.text) < LONGEST:
            self.append_(session, ["of many words " * (length // 14)])
        self.stage.engine.forget()

    @rule(session=SessionMachine.sessions)
    def ask_from_below(self, session: Session) -> None:
        """What the device does not hold."""
        self.stage.engine.forget()
        self.ask(session, {"done"}, None)

    @rule(fault=st.sampled_from(FAULTS))
    def disturb(self, fault: str) -> None:
        """It lasts until the next one, or until all is well."""
        self.world.disturb(fault)
        self.operations[fault] += 1

    @rule()
    def all_is_well(self) -> None:
        """The network carries everything again."""
        self.world.undisturbed()

    @rule()
    def restart(self) -> None:
        """Now and then: it takes long."""
        if WHIM.random() < 0.1:
            self.world.restart()

    @invariant()
    def tell(self) -> None:
        """How far it is."""
        self.operations["all"] += 1
        if LOG and not self.operations["all"] % 1_000:
            with Path(LOG).open("a") as log:
                log.write(f"{time.strftime('%X')} {dict(self.operations)}\n")


@pytest.mark.parametrize(("kind", "program"), list(zip(KINDS, programs(), strict=True)), ids=KINDS)
def test_session_equals_stateless(kind: str, program: str, tmp_path: Path) -> None:
    """Whatever was done, whichever tier held what, and whatever befell it."""
    directory = chat_model(tmp_path / "model", *KINDS[kind])
    counts: Counter[str] = Counter()
    done: Counter[str] = Counter()
    world = World(directory, tmp_path, program, counts)

    class Machine(WorldMachine):
        stage = world.stage
        operations = done

    Machine.world = world
    try:
        while done["all"] < OPERATIONS:
            run_state_machine_as_test(
                Machine,
                settings=settings(
                    max_examples=min(200, -(-OPERATIONS // STEPS)),
                    stateful_step_count=STEPS,
                    deadline=None,
                    database=None,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        world.restart()
    finally:
        world.close()
    if LOG:
        with Path(LOG).open("a") as log:
            log.write(f"{kind}: {world.restarts} restarts, {dict(done)}, {dict(counts)}\n")

    assert counts["host hits"] > 0
    assert counts["redis hits"] > 0
    assert counts["redis failed:unexpected"] == 0
