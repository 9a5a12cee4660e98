"""The judge as a tool, by LangChain's own suites and inside an agent."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from langgraph.checkpoint.memory import InMemorySaver

from flide_agent import Answers, Choice, Noul
from langchain_flide import judge_tool
from tests.langchain.agents import Run, results
from tests.langchain.support import ScriptedChat, calls, stage

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

QUESTIONS = {
    "kind": Noul(instructions="Is it kind?"),
    "tone": Choice(instructions="Which tone?", criteria={"warm": None, "cold": None}),
}


class _Judge:
    @property
    def tool_constructor(self) -> BaseTool:
        return judge_tool(QUESTIONS, decisions=stage(lambda question, asked: 0.7).client)

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"text": "Dear customer"}


class TestUnit(_Judge, ToolsUnitTests):
    """What every tool must do."""


@pytest.mark.anyio
class TestIntegration(_Judge, ToolsIntegrationTests):
    """What every tool must do when it is called."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"


@pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])
def test_in_an_agent(use_async: bool) -> None:
    """It judges the conversation and the text; the artifact has the answers whole."""
    scene = stage(lambda question, asked: 0.7)
    judge = judge_tool(QUESTIONS, decisions=scene.client, name="second_opinion")
    lines = [calls(("second_opinion", {"text": "Get lost."})), AIMessage("done")]
    agent = create_agent(ScriptedChat(lines=lines), tools=[judge], checkpointer=InMemorySaver())

    result = results(Run(agent, use_async=use_async)("Write to Ann.")["messages"])["call0"]

    (asked,) = scene.transport.asked
    assert asked.session == "t"
    assert "Write to Ann." in asked.turns[0]
    assert asked.local == '{"text": "Get lost."}\n'
    assert json.loads(result.text) == {"kind": 0.7, "tone": {"warm": 0.7, "cold": 0.3}}
    assert Answers.model_validate(result.artifact)["kind"].noul == 0.7  # type: ignore[union-attr]


def test_what_the_model_is_shown() -> None:
    """A text it may give, and nothing of the run."""
    judge = judge_tool(QUESTIONS, decisions=stage().client, description="Asks.")

    assert judge.tool_call_schema.model_json_schema()["properties"].keys() == {"text"}  # type: ignore[union-attr]
    assert judge.description == "Asks."


def test_without_a_conversation() -> None:
    """Outside of an agent the text is all there is."""
    scene = stage()
    judge = judge_tool(QUESTIONS, decisions=scene.client)
    judge.invoke({"text": "Dear all"})
    asyncio.run(judge.ainvoke({"text": "Dear all"}))

    assert [asked.text for asked in scene.transport.asked] == ['{"text": "Dear all"}\n'] * 2


def test_history_goes_before() -> None:
    """The messages of the run are the session's history, the call for a judge included."""
    scene = stage()
    judge = judge_tool(QUESTIONS, decisions=scene.client)
    lines = [
        calls(("judge", {}), first=0),
        calls(("judge", {}), first=1),
        AIMessage("done"),
    ]
    agent = create_agent(ScriptedChat(lines=lines), tools=[judge], checkpointer=InMemorySaver())
    Run(agent)({"messages": [HumanMessage("Hello")]})

    assert [asked.sent for asked in scene.transport.asked] == [2, 2]
    assert [asked.local for asked in scene.transport.asked] == ["", ""]
