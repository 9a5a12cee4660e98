"""A guard in an agent: what is blocked, what goes on, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel

from langchain_flide import DecisionMiddleware
from tests.langchain.agents import (
    REFUNDS,
    TALK,
    Run,
    both,
    by_amount,
    by_last,
    guarded,
    look_up,
    ran,
    refund,
    results,
)
from tests.langchain.support import ScriptedChat, calls, stage


class Verdict(BaseModel):
    """A structured answer."""

    text: str


@both
def test_calls_are_judged_each_by_itself(use_async: bool) -> None:
    """A blocked call gets an error, the calls beside it run, and the agent goes on."""
    scene = stage(by_amount)
    run = guarded(
        scene,
        REFUNDS,
        [
            calls(
                ("refund", {"order": "A", "amount": 900}),
                ("refund", {"order": "B", "amount": 5}),
                ("look_up", {"order": "C"}),
            ),
            AIMessage("done"),
        ],
        use_async=use_async,
    )

    messages = run("Refund A and B, find C.")["messages"]

    got = results(messages)
    assert sorted(ran) == ["look_up C", "refund B 5"]
    assert got["call0"].status == "error"
    assert "large" in got["call0"].text
    assert got["call1"].text == "refunded B"
    assert messages[-1].text == "done"
    assert [r.decision.action for r in scene.audit.records].count("block") == 1
    assert len(scene.audit.records) == len(scene.transport.asked) == 2


@both
def test_a_blocked_input_ends_the_run(use_async: bool) -> None:
    """The model is never called, and the answer says why."""
    scene = stage(by_last)
    chat = ScriptedChat(lines=[])
    guard = DecisionMiddleware(TALK, decisions=scene.client)
    agent = create_agent(chat, middleware=[guard], checkpointer=InMemorySaver())

    result = Run(agent, use_async=use_async)("DAMN you")

    assert chat.heard == []
    assert "rude" in result["messages"][-1].text
    assert isinstance(result["messages"][-1], AIMessage)
    assert "decision_guard" not in result


@both
def test_a_blocked_last_word_is_replaced(use_async: bool) -> None:
    """Nobody reads what the model said."""
    scene = stage(by_last)
    run = guarded(scene, TALK, [AIMessage("DAMN right")], use_async=use_async)

    messages = run("Hello")["messages"]

    assert len(messages) == 2
    assert "DAMN" not in messages[-1].text
    assert messages[-1].additional_kwargs["decision"]["rule"] == "rude"


def test_what_is_judged() -> None:
    """The prompt and the tools come first, then the state; the call is whole and has no id."""
    scene = stage()
    long = "x" * 50_000
    run = guarded(
        scene, REFUNDS, [calls(("refund", {"order": long, "amount": 1})), AIMessage("ok")]
    )

    run("Go")

    (asked,) = scene.transport.asked
    assert "Be of help." in asked.turns[0]
    assert "Give money back." in asked.turns[0]
    assert len(asked.turns) == 3
    assert long in asked.local
    assert "call0" not in asked.text
    assert asked.request.tool == "refund"


@pytest.mark.parametrize("once", [True, False])
def test_input_once_a_turn_or_at_every_step(once: bool) -> None:
    """By default the input is judged once a run; else tool results are judged too."""
    scene = stage(by_last)
    run = guarded(
        scene,
        TALK,
        [calls(("look_up", {"order": "DAMN"})), AIMessage("never")],
        on=("input",),
        once_per_turn=once,
    )

    messages = run("Find it")["messages"]

    assert len(scene.transport.asked) == (1 if once else 2)
    assert (messages[-1].text == "never") is once
    assert ran == ["look_up DAMN"]


def test_only_what_is_new_is_sent() -> None:
    """A thread's history goes over the wire once."""
    scene = stage()
    steps = 6
    lines = [calls(("refund", {"order": str(n), "amount": n}), first=n) for n in range(steps)]
    guarded(scene, REFUNDS, [*lines, AIMessage("done")])("Refund all.")

    assert [asked.sent for asked in scene.transport.asked] == [3] + [2] * (steps - 1)
    assert [len(asked.turns) for asked in scene.transport.asked] == list(range(3, 3 + 2 * steps, 2))


def test_the_call_judged_is_the_call_run() -> None:
    """A call that other middleware rewrites is judged again, as it is going to run."""

    class Rewrites(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            call = request.tool_call
            args = {**call["args"], "amount": 900}
            return handler(request.override(tool_call={**call, "args": args}))

    scene = stage(by_amount)
    lines = [calls(("refund", {"order": "A", "amount": 5})), AIMessage("done")]
    messages = guarded(scene, REFUNDS, lines, before=[Rewrites()])("Go")["messages"]

    assert ran == []
    assert results(messages)["call0"].status == "error"


@both
def test_in_a_tool_node(use_async: bool) -> None:
    """The same guard wraps the calls of a plain graph's tool node."""
    scene = stage(by_amount)
    guard = DecisionMiddleware(REFUNDS, decisions=scene.client)
    node = ToolNode(
        [refund, look_up],
        wrap_tool_call=guard.wrap_tool_call,
        awrap_tool_call=guard.awrap_tool_call,
    )
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    run = Run(graph.compile(checkpointer=InMemorySaver()), use_async=use_async)

    made = calls(("refund", {"order": "A", "amount": 900}), ("refund", {"order": "B", "amount": 1}))
    got = results(run({"messages": [made]})["messages"])

    assert ran == ["refund B 1"]
    assert (got["call0"].status, got["call1"].status) == ("error", "success")


def test_structured_output_is_a_last_word() -> None:
    """A structured answer that is blocked is neither in the messages nor in the state."""
    scene = stage(by_last)
    said = AIMessage("", tool_calls=[{"name": "Verdict", "args": {"text": "DAMN"}, "id": "v"}])
    agent = create_agent(
        ScriptedChat(lines=[said]),
        middleware=[DecisionMiddleware(TALK, decisions=scene.client, on=("output",))],
        response_format=Verdict,
        checkpointer=InMemorySaver(),
    )

    result = Run(agent)("Hello")

    assert result.get("structured_response") is None
    assert "DAMN" not in str(result["messages"])
