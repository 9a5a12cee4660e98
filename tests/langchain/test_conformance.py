"""Our decision model and our guard do what any should; the stock guard does so with our model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import AutoModeMiddleware

from flide_agent import Noul, Policy, Rule
from langchain_flide import DecisionMiddleware, SessionDecisionModel
from tests.langchain.conformance import DecisionModelTests, GuardTests
from tests.langchain.support import stage

if TYPE_CHECKING:
    from langchain_core.decisions import BaseDecisionModel

    from tests.langchain.conftest import House
    from tests.langchain.support import Asked


def blocks_now(question: str, asked: Asked) -> float:
    """A call with "now": true is wrong."""
    return 0.9 if '"now": true' in asked.local else 0.1


class TestSessionDecisionModel(DecisionModelTests):
    """On an engine in this process."""

    @pytest.fixture
    def model(self, house: House) -> BaseDecisionModel:
        return SessionDecisionModel(client=house.client)


class TestSessionDecisionModelOfAnAsyncClient(DecisionModelTests):
    """It is the same model."""

    @pytest.fixture
    def model(self, house: House) -> BaseDecisionModel:
        return SessionDecisionModel(client=house.client.to_async())


class TestDecisionMiddleware(GuardTests):
    """By a policy."""

    @pytest.fixture
    def guard(self) -> Any:
        policy = Policy([Rule("wrong", Noul(instructions="Is it?"), block=0.5, tools=["*"])])
        return DecisionMiddleware(policy, decisions=stage(blocks_now).client)


class TestDecisionMiddlewareAtEveryStep(GuardTests):
    """By a policy that looks at tool results too."""

    @pytest.fixture
    def guard(self) -> Any:
        policy = Policy([Rule("wrong", Noul(instructions="Is it?"), block=0.5)])
        return DecisionMiddleware(
            policy, decisions=stage(blocks_now).client, once_per_turn=False, name="steps"
        )


class TestAutoMode(GuardTests):
    """The stock middleware with our decision model."""

    @pytest.fixture
    def guard(self) -> Any:
        model = SessionDecisionModel(client=stage(blocks_now).client)
        return AutoModeMiddleware(tools=["wipe", "ask"], classifier=model)
