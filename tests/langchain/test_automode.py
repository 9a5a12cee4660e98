"""LangChain's own middleware, with our decision model in the place of any other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AutoModeMiddleware, ModelChoice, ModelRouterMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from flide_agent import Noul
from langchain_flide import SessionDecisionModel
from tests.langchain.conftest import Listener, numbers
from tests.langchain.support import ScriptedChat, calls

if TYPE_CHECKING:
    from tests.langchain.conftest import House

STEPS = 30
INSTRUCTIONS = "Is the pending call risky?"


@tool
def send(to: str) -> str:
    """Send it."""
    return f"sent to {to}"


@tool
def look(at: str) -> str:
    """Look at it."""
    return f"saw {at}"


def run(house: House, script: list[AIMessage], *, use_async: bool = False, **options: Any) -> Any:
    """An agent guarded by the stock middleware; its messages, and what the classifier said."""
    model = SessionDecisionModel(client=house.client, **options)
    agent: Any = create_agent(
        ScriptedChat(lines=script),
        tools=[send, look],
        middleware=[AutoModeMiddleware(tools=[send], instructions=INSTRUCTIONS, classifier=model)],
        checkpointer=InMemorySaver(),
    )
    heard = Listener()
    config = {"configurable": {"thread_id": "t"}, "callbacks": [heard]}
    given = {"messages": [HumanMessage("Send them all, one by one.")]}
    if use_async:
        return asyncio.run(agent.ainvoke(given, config))["messages"], heard.responses
    return agent.invoke(given, config)["messages"], heard.responses


def local(message: Any) -> dict[str, Any]:
    """What the stock middleware adds to the messages, without the call's id."""
    call = message.tool_calls[0]
    return {
        "tool_call": {"name": call["name"], "args": call["args"]},
        "tool_description": "Send it.",
    }


def script(steps: int = STEPS) -> list[AIMessage]:
    """One call a step."""
    made = [calls(("send", {"to": f"number {n}"}), first=n) for n in range(steps)]
    return [*made, AIMessage("done")]


def test_sixty_messages(house: House) -> None:
    """The window is recognised, only what is new is computed, answers are those of the whole."""
    messages, responses = run(house, script())

    sessions = [response.x_session for response in responses]
    assert len(responses) == STEPS
    assert [s.reason for s in sessions] == ["new"] + ["appended"] * 14 + ["windowed"] * 15
    computed = [s.new_tokens for s in sessions]
    assert max(computed[1:]) - min(computed[1:]) < 200
    assert sessions[-1].tokens > 8 * sessions[0].tokens
    assert sessions[-1].tokens > 10 * max(computed[-5:])
    asked = {"is_risky": Noul(instructions=INSTRUCTIONS)}
    for step in (13, 17, STEPS - 1):
        history = messages[: 2 + 2 * step]
        truth = house.stateless(history, asked, local(history[-1]))
        assert numbers(responses[step]) == pytest.approx(truth, abs=1e-9)


def test_with_an_event_loop(house: House) -> None:
    """The window is recognised just so."""
    _, responses = run(house, script(17), use_async=True)

    assert [r.x_session.reason for r in responses] == ["new"] + ["appended"] * 14 + ["windowed"] * 2


def test_exactly_the_window(house: House) -> None:
    """With history="exact" the thirty messages that were sent are judged, and no others."""
    messages, responses = run(house, script(17), history="exact")

    assert responses[-1].x_session.reason == "windowed"
    asked = {"is_risky": Noul(instructions=INSTRUCTIONS)}
    history = messages[:34]
    truth = house.stateless(history[-30:], asked, local(history[-1]))
    assert numbers(responses[-1]) == pytest.approx(truth, abs=1e-9)


def test_a_gap_begins_a_branch(house: House) -> None:
    """More messages than a window holds went by unseen: they cannot be made up."""
    unseen = [calls(("look", {"at": f"thing {n}"}), first=100 + n) for n in range(16)]
    lines = [*script(2)[:2], *unseen, *script(1)]
    messages, responses = run(house, lines)

    assert [r.x_session.reason for r in responses] == ["new", "appended", "edited"]
    asked = {"is_risky": Noul(instructions=INSTRUCTIONS)}
    truth = house.stateless(messages[:-2][-30:], asked, local(messages[-3]))
    assert numbers(responses[-1]) == pytest.approx(truth, abs=1e-9)


def test_the_model_router(house: House) -> None:
    """It asks about one message; that is answered without a session."""
    model = SessionDecisionModel(client=house.client)
    with pytest.warns(match="beta"):
        router = ModelRouterMiddleware(
            choices={
                "fast": ModelChoice(ScriptedChat(lines=[AIMessage("quick")]), "Simple."),
                "slow": ModelChoice(ScriptedChat(lines=[AIMessage("deep")]), "Hard."),
            },
            instructions="Which one?",
            classifier=model,
        )
    agent: Any = create_agent(ScriptedChat(lines=[]), middleware=[router])
    heard = Listener()

    result = agent.invoke({"messages": [HumanMessage("Hi")]}, {"callbacks": [heard]})

    route = result["model_route"]
    assert sum(route.probabilities.values()) == pytest.approx(1)
    assert result["messages"][-1].text == {"fast": "quick", "slow": "deep"}[route.choice]
    assert heard.responses[0].x_session is None
