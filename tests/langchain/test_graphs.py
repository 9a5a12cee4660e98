"""A guard and a router in graphs of one's own."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from flide_agent import Choice, EngineUnavailable, InvalidInput, Noul, Policy, Rule
from langchain_flide import guard_node, route_by
from tests.langchain.agents import REFUNDS, TALK, Run, both, by_amount
from tests.langchain.support import Stage, calls, stage

INTENT = Choice(instructions="What is it?", criteria={"refund": None, "bug": None, "other": None})
PATHS = {"refund": "money", "bug": "tech", "other": "desk"}


class State(MessagesState):
    """Messages, and a place for decisions."""

    decision: dict[str, Any]


def went(name: str) -> Any:
    """A node that leaves its name."""
    return lambda state: {"messages": [AIMessage(name)]}


def with_guard(scene: Stage, policy: Policy, schema: Any = State, **options: Any) -> Any:
    """A graph with a guard before its agent."""
    graph = StateGraph(schema)
    node = guard_node(policy, decisions=scene.client, **options)
    graph.add_node("guard", node, destinations=("agent", "human", END))
    graph.add_node("agent", went("agent"))
    graph.add_node("human", went("human"))
    graph.add_edge(START, "guard")
    return graph.compile(checkpointer=InMemorySaver())


@both
@pytest.mark.parametrize(("p", "last"), [(0.1, "agent"), (0.6, "human"), (0.95, "Hello")])
def test_a_guard_goes_where_the_policy_says(p: float, last: str, use_async: bool) -> None:
    """On, to a person, or to the end; the state has the decision."""
    scene = stage(lambda question, asked: p)
    result = Run(with_guard(scene, TALK), use_async=use_async)("Hello")

    assert result["messages"][-1].text == last
    assert result["decision"]["p"] == p
    assert len(scene.transport.asked) == 1


def test_the_strictest_of_several_calls_counts() -> None:
    """Calls that the history ends with are judged each by itself."""
    scene = stage(by_amount)
    made = calls(("refund", {"amount": 5}), ("refund", {"amount": 500}), ("other", {}))
    result = Run(with_guard(scene, REFUNDS))({"messages": [HumanMessage("Go."), made]})

    assert result["messages"][-1].text == "human"
    assert len(scene.transport.asked) == 2
    assert result["decision"]["tool"] == "refund"


def test_a_state_without_a_place_for_it_gets_no_decision() -> None:
    """The guard works in any graph of messages, and says what it decided on the stream."""
    scene = stage(lambda question, asked: 0.95)
    run = Run(with_guard(scene, TALK, MessagesState, name="door"))

    (event,) = run.events("Hello")

    assert (event["guard"], event["on"], event["action"]) == ("door", "input", "block")
    assert "decision" not in run("Hello")


def test_a_guard_when_the_engine_is_down() -> None:
    """The policy's on_error says where to go."""
    scene = stage()
    scene.transport.fault = EngineUnavailable("gone")
    policy = TALK.model_copy(update={"on_error": "review"})
    result = Run(with_guard(scene, policy))("Hello")

    assert result["messages"][-1].text == "human"
    assert result["decision"]["degraded"]
    assert len(scene.audit.records) == 1


def routed(scene: Stage, **options: Any) -> Any:
    """A graph that goes where a choice says."""
    graph = StateGraph(MessagesState)
    for name in (*PATHS.values(), "unsure"):
        graph.add_node(name, went(name))
    graph.add_conditional_edges(
        START, route_by(INTENT, decisions=scene.client, **{"paths": PATHS, **options})
    )
    return graph.compile(checkpointer=InMemorySaver())


@both
def test_a_router_takes_the_path_of_the_likeliest(use_async: bool) -> None:
    """Of the options that the choice has."""
    run = Run(routed(stage(lambda question, asked: 0.8)), use_async=use_async)

    assert run("Money back!")["messages"][-1].text == "money"


@pytest.mark.parametrize(("p", "last"), [(0.59, "unsure"), (0.6, "money")])
def test_a_router_with_a_floor(p: float, last: str) -> None:
    """An option that is not likely enough is not taken."""
    run = Run(routed(stage(lambda question, asked: p), floor=0.6, otherwise="unsure"))

    assert run("Money back?")["messages"][-1].text == last


def test_options_without_a_path_go_otherwise() -> None:
    """And a router that may not know where to go is refused when it is made."""
    paths = {"bug": "tech"}
    scene = stage(lambda question, asked: 0.9)

    assert Run(routed(scene, paths=paths, otherwise="desk"))("?")["messages"][-1].text == "desk"
    for options in ({"paths": paths}, {"floor": 0.1}):
        with pytest.raises(InvalidInput, match="otherwise"):
            routed(scene, **options)
    with pytest.raises(InvalidInput, match="nowhere"):
        routed(scene, paths={**PATHS, "nowhere": "tech"})


def test_a_router_does_not_guess_when_the_engine_is_down() -> None:
    """It fails, so that the graph's own retry or error handling decides."""
    scene = stage()
    scene.transport.fault = EngineUnavailable("gone")

    with pytest.raises(EngineUnavailable):
        Run(routed(scene))("?")


def test_rules_for_tools_are_not_asked_without_a_call() -> None:
    """Then nothing is asked at all, and the way is free."""
    scene = stage(lambda question, asked: 1.0)
    result = Run(with_guard(scene, REFUNDS))("Hello")

    assert result["messages"][-1].text == "agent"
    policy = Policy([Rule("x", Noul(instructions="?"), block=0.5, tools=["*"])])
    assert Run(with_guard(scene, policy))("Hello")["messages"][-1].text == "agent"
