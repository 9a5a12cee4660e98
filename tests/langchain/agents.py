"""A small agent with two tools, and policies with opinions that a script can have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from flide_agent import Noul, Policy, Rule
from langchain_flide import DecisionMiddleware
from tests.langchain.support import ScriptedChat, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.langchain.support import Asked

both = pytest.mark.parametrize("use_async", [False, True], ids=["sync", "async"])

ran: list[str] = []
"""The calls that ran."""


@tool
def refund(order: str, amount: float) -> str:
    """Give money back."""
    ran.append(f"refund {order} {amount:g}")
    return f"refunded {order}"


@tool
def look_up(order: str) -> str:
    """Find an order."""
    ran.append(f"look_up {order}")
    return f"found {order}"


REFUNDS = Policy(
    [Rule("large", Noul(instructions="Is it large?"), review=0.5, block=0.9, tools=["refund*"])]
)
TALK = Policy([Rule("rude", Noul(instructions="Is it rude?"), review=0.5, block=0.9)])


def by_amount(question: str, asked: Asked) -> float:
    """Refunds of 900 are wrong, those of 500 need a look."""
    return (
        0.95 if '"amount": 900' in asked.local else 0.6 if '"amount": 500' in asked.local else 0.1
    )


def by_last(question: str, asked: Asked) -> float:
    """What says DAMN last is rude, what says HEY needs a look."""
    last = asked.turns[-1]
    return 0.95 if "DAMN" in last else 0.6 if "HEY" in last else 0.1


class Run:
    """An agent in a thread, run with or without an event loop."""

    def __init__(self, agent: Any, *, use_async: bool = False, thread: str | None = "t") -> None:
        self.agent = agent
        self.config: Any = {"configurable": {"thread_id": thread}} if thread else {}
        self._async = use_async

    def __call__(self, given: Any, config: Any = None) -> dict[str, Any]:
        """Run it, on words of a user or on whatever a graph takes."""
        config = config or self.config
        result: dict[str, Any]
        if self._async:
            result = asyncio.run(self.agent.ainvoke(_given(given), config))
        else:
            result = self.agent.invoke(_given(given), config)
        return result

    def events(self, given: Any) -> list[dict[str, Any]]:
        """What the custom stream says of a run."""
        return list(self.agent.stream(_given(given), self.config, stream_mode="custom"))

    def answer(self, *decisions: dict[str, Any]) -> dict[str, Any]:
        """Resume with answers to the interrupts, in their order."""
        pending = self.agent.get_state(self.config).interrupts
        answers = {
            i.id: {"decisions": [decision]} for i, decision in zip(pending, decisions, strict=True)
        }
        return self(Command(resume=answers))


def _given(given: Any) -> Any:
    return {"messages": [HumanMessage(given)]} if isinstance(given, str) else given


def guarded(
    scene: Stage,
    policy: Policy,
    lines: Sequence[AIMessage],
    *,
    use_async: bool = False,
    thread: str | None = "t",
    before: Sequence[Any] = (),
    saver: Any = None,
    tools: Sequence[Any] = (),
    **options: Any,
) -> Run:
    """An agent with a guard as the last of its middleware."""
    guard = DecisionMiddleware(policy, decisions=scene.client, **options)
    agent = create_agent(
        ScriptedChat(lines=list(lines)),
        tools=[refund, look_up, *tools],
        middleware=[*before, guard],
        system_prompt="Be of help.",
        checkpointer=(saver or InMemorySaver()) if thread else None,
    )
    return Run(agent, use_async=use_async, thread=thread)


def results(messages: Sequence[Any]) -> dict[str, ToolMessage]:
    """Tool results by the id of their call."""
    return {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
