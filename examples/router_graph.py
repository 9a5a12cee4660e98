"""A graph that goes where a decision model says, past a guard.

Run it with `python examples/router_graph.py`, where flide-agent[demo,langchain] is installed.
SmolLM2 is too small to judge: what counts here is that the graph goes somewhere, and says why.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from flide_agent import Choice, Client, Noul, Policy, Rule
from langchain_flide import guard_node, route_by

INTENT = Choice(
    instructions="What does the customer want?",
    criteria={"refund": "Money back.", "bug": "Something is broken.", "other": None},
)
PATHS = {"refund": "billing", "bug": "support", "other": "desk"}

# Beyond 1 a probability never is, so this guard lets everybody in.
POLICY = Policy([Rule("abuse", Noul(instructions="Is it abusive?"), block=1.0)], timeout=60)


class State(MessagesState):
    """Messages, and the guard's decision."""

    decision: dict[str, Any]


def answer(team: str) -> Any:
    """A node that answers for a team."""
    return lambda state: {"messages": [AIMessage(f"This is {team}.")]}


def build(client: Client) -> Any:
    """START, guard, router, team."""
    graph = StateGraph(State)
    guard = guard_node(POLICY, decisions=client, allow="router", review="desk")
    graph.add_node("guard", guard, destinations=("router", "desk", END))
    graph.add_node("router", lambda state: {})
    for team in PATHS.values():
        graph.add_node(team, answer(team))
    graph.add_edge(START, "guard")
    router = route_by(INTENT, decisions=client, paths=PATHS, floor=0.1, otherwise="desk")
    graph.add_conditional_edges("router", router, list(PATHS.values()))
    return graph.compile()


def main(client: Client) -> None:
    """Send a customer through."""
    graph = build(client)
    given = {"messages": [("user", "My kettle leaks.")]}
    config = {"configurable": {"thread_id": "kettle"}}
    for kind, chunk in graph.stream(given, config, stream_mode=["custom", "updates"]):
        if kind == "custom":
            print(f"{chunk['guard']}: {chunk['action']}, {chunk['reason']}")
        else:
            print("went to:", *chunk)


if __name__ == "__main__":
    with Client.local("smollm2") as smollm2:
        main(smollm2)
