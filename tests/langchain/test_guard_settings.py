"""How a guard is set up, what it then says, and what happens when nobody can be asked."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from flide_agent import EngineUnavailable, InvalidInput, Noul, Policy, Rule
from langchain_flide import DecisionMiddleware
from tests.langchain.agents import (
    REFUNDS,
    TALK,
    Run,
    both,
    by_amount,
    guarded,
    ran,
    refund,
    results,
)
from tests.langchain.support import ScriptedChat, calls, stage


@pytest.mark.parametrize("action", ["allow", "review", "block"])
@both
def test_engine_down(action: str, use_async: bool) -> None:
    """The policy says what then happens; the decision is degraded, and recorded all the same."""
    scene = stage()
    scene.transport.fault = EngineUnavailable("the engine is gone")
    policy = REFUNDS.model_copy(update={"on_error": action})
    run = guarded(
        scene,
        policy,
        [calls(("refund", {"order": "A", "amount": 5})), AIMessage("done")],
        use_async=use_async,
    )

    result = run("Refund A.")

    assert ran == (["refund A 5"] if action == "allow" else [])
    assert ("__interrupt__" in result) is (action == "review")
    if action == "block":
        assert "could not be asked" in results(result["messages"])["call0"].text
    (record,) = scene.audit.records
    assert (record.decision.action, record.decision.degraded) == (action, True)
    assert record.decision.error == "EngineUnavailable"


def test_shadow_watches() -> None:
    """A policy in shadow mode lets everything run and records what it would have done."""
    scene = stage(by_amount)
    policy = REFUNDS.model_copy(update={"mode": "shadow"})
    run = guarded(
        scene, policy, [calls(("refund", {"order": "A", "amount": 900})), AIMessage("ok")]
    )

    run("Refund A.")

    assert ran == ["refund A 900"]
    assert scene.audit.records[0].decision.would == "block"


def test_events() -> None:
    """Every decision is an event of the custom stream, without text of messages."""
    scene = stage(by_amount)
    lines = [
        calls(("refund", {"order": "secret", "amount": 900}), ("look_up", {"order": "secret"})),
        AIMessage("done"),
    ]
    run = guarded(scene, REFUNDS, lines)

    (event,) = run.events("Refund the secret order.")

    assert event["type"] == "decision"
    assert (event["guard"], event["on"], event["tool"]) == ("decision_guard", "tool", "refund")
    assert (event["action"], event["rule"], event["p"]) == ("block", "large", 0.95)
    assert (event["tool_call_id"], event["replayed"]) == ("call0", False)
    assert "secret" not in str(event)


def test_without_a_thread() -> None:
    """Nothing is remembered: every decision is asked for in a session of its own."""
    scene = stage(by_amount)
    lines = [calls(("refund", {"order": "A", "amount": 900})), AIMessage("no")]
    messages = guarded(scene, REFUNDS, lines, thread=None)("Refund A.")["messages"]
    guarded(scene, REFUNDS, lines, thread=None)("Refund A.")

    assert results(messages)["call0"].status == "error"
    one, other = scene.transport.asked
    assert one.session != other.session
    assert one.request.ttl <= 60
    assert one.request.key is None


def test_two_guards_keep_apart() -> None:
    """Guards of one agent have names and notes of their own."""
    scene = stage(
        lambda question, asked: by_amount(question, asked) if question == "large" else 0.6
    )
    again = Policy([Rule("odd", Noul(instructions="?"), block=0.5, tools=["look_up"])])
    first = DecisionMiddleware(again, decisions=scene.client, name="first")
    lines = [
        calls(("refund", {"order": "A", "amount": 900}), ("look_up", {"order": "B"})),
        AIMessage("done"),
    ]
    messages = guarded(scene, REFUNDS, lines, before=[first])("Go")["messages"]

    assert ran == []
    assert "(large)" in results(messages)["call0"].text
    assert "(odd)" in results(messages)["call1"].text
    assert len(scene.transport.asked) == 2


def test_settings_are_checked() -> None:
    """A setting that is unknown is refused when the guard is made."""
    scene = stage()
    with pytest.raises(InvalidInput, match="inputs"):
        DecisionMiddleware(TALK, decisions=scene.client, on=("inputs",))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="ask"):
        DecisionMiddleware(TALK, decisions=scene.client, review="ask")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="Client"):
        DecisionMiddleware(TALK, decisions="jev-latest")  # type: ignore[arg-type]


def test_only_what_is_new_may_be_judged() -> None:
    """With since="last" the engine is told to judge what came after the last decision."""
    scene = stage()
    guarded(scene, TALK, [AIMessage("hello")], since="last")("Hi")

    assert [asked.request.since for asked in scene.transport.asked] == ["last"] * 2


def test_a_prompt_that_never_stays_the_same_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """It makes every history a new one; told once."""
    ticks = itertools.count()
    clock = dynamic_prompt(lambda request: f"It is {next(ticks)} o'clock.")
    lines = [calls(("look_up", {"order": str(n)}), first=n) for n in range(9)]
    guarded(stage(), REFUNDS, [*lines, AIMessage("done")], before=[clock])("Look.")

    (record,) = caplog.records
    assert "clock" in record.getMessage()


def test_a_given_prompt_is_the_one_judged_with() -> None:
    """From the first input on, whatever the model is called with."""
    scene = stage()
    guarded(scene, TALK, [AIMessage("hello")], system="Judge by this.")("Hi")

    assert {asked.turns[0] for asked in scene.transport.asked} == {
        '{"role":"system","content":"Judge by this."}\n'
    }


def test_agents_share_no_notes() -> None:
    """A guard's notes stay in its agent: neither the graph around it nor another agent has them."""
    scene = stage(by_amount)
    graph = StateGraph(MessagesState)
    for name in ("first", "second"):
        agent: Any = create_agent(
            ScriptedChat(lines=[calls(("refund", {"order": name, "amount": 5})), AIMessage("ok")]),
            tools=[refund],
            middleware=[DecisionMiddleware(REFUNDS, decisions=scene.client)],
        )
        graph.add_node(name, agent)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    run = Run(graph.compile(checkpointer=InMemorySaver()))

    result = run("Refund both.")

    assert ran == ["refund first 5", "refund second 5"]
    assert [asked.request.agent for asked in scene.transport.asked] == ["first", "second"]
    assert result.keys() == run.agent.get_state(run.config).values.keys() == {"messages"}
