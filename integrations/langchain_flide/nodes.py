"""A guard and a router for graphs that are no agents of `create_agent`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.constants import END
from langgraph.runtime import get_runtime
from langgraph.types import Command

from flide_agent import ChoiceAnswer, InvalidInput
from langchain_flide.deciding import Desk, Pending, adrive, drive
from langchain_flide.events import announce
from langchain_flide.messages import messages_of, open_calls
from langchain_flide.sessions import sessions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flide_agent import Answers, AsyncClient, Choice, Client, Decision, Policy
    from langchain_flide.deciding import Steps
    from langchain_flide.model import SessionDecisionModel

_STRICTNESS = {"allow": 0, "review": 1, "block": 2}


def guard_node(
    policy: Policy,
    *,
    decisions: SessionDecisionModel | Client | AsyncClient,
    allow: str = "agent",
    review: str = "human",
    block: str = END,
    name: str = "guard",
) -> Runnable[Any, Command[str]]:
    """A node that goes to one of three others, as a policy decides.

    It judges the tool calls that the state's messages end with, each by itself, of which the
    strictest decision counts; or, if there are none, the history. A state that has a "decision"
    gets the decision there, as a map.

        graph.add_node("guard", guard_node(policy, decisions=client), destinations=("agent", END))

    Args:
        policy: the rules.
        decisions: who is asked.
        allow, review, block: the nodes to go to.
        name: of the guard in events and traces.
    """
    desk = Desk(policy, sessions_of(decisions), None)
    goto = {"allow": allow, "review": review, "block": block}

    def steps(state: Any) -> Steps[Command[str]]:
        messages, runtime = messages_of(state), get_runtime()
        calls = [call for call in open_calls(messages) if desk.asks_about(call["name"])]
        pending = [Pending("tool", messages, call) for call in calls]
        pending = pending or [Pending("input", messages)]
        made: list[Decision] = yield [desk.keyed(one, runtime.execution_info) for one in pending]
        for one, decision in zip(pending, made, strict=True):
            announce(runtime.stream_writer, name, one, decision)
        strictest = max(made, key=lambda decision: _STRICTNESS[decision.action])
        update = {"decision": json.loads(strictest.to_json())}
        return Command(goto=goto[strictest.action], update=update)

    def guard(state: Any) -> Command[str]:
        return drive(steps(state), desk)

    async def aguard(state: Any) -> Command[str]:
        return await adrive(steps(state), desk)

    return RunnableLambda(guard, aguard, name=name)


def route_by(
    choice: Choice,
    *,
    decisions: SessionDecisionModel | Client | AsyncClient,
    paths: Mapping[str, str],
    floor: float = 0.0,
    otherwise: str | None = None,
    name: str = "route",
) -> Runnable[Any, str]:
    """A conditional edge that goes where a choice about the history says.

        graph.add_conditional_edges(START, route_by(intent, decisions=client, paths=paths))

    Args:
        choice: what is asked.
        decisions: who is asked.
        paths: the node of every option.
        floor: the least probability that an option must have to be taken.
        otherwise: the node for options without a path, and where no option reaches the floor.
        name: of the edge in traces.

    Raises:
        InvalidInput: the paths do not fit the options, or may need an `otherwise`.
    """
    sessions = sessions_of(decisions)
    if unknown := paths.keys() - choice.criteria.keys():
        raise InvalidInput(
            f"paths has {sorted(unknown)}, but the options are {', '.join(choice.criteria)}."
        )
    if otherwise is None and (floor > 0 or paths.keys() != choice.criteria.keys()):
        raise InvalidInput(
            "there is no otherwise, but a floor above 0 or an option without a path needs one; "
            "name the node to go to then."
        )

    def taken(answers: Answers) -> str:
        answer = answers[name]
        assert isinstance(answer, ChoiceAnswer)
        reached = answer.probabilities[answer.choice] >= floor
        path = paths.get(answer.choice, otherwise) if reached else otherwise
        assert path is not None
        return path

    def route(state: Any) -> str:
        with sessions.borrow(sessions.place()) as session:
            return taken(session.ask({name: choice}, messages=messages_of(state)))

    async def aroute(state: Any) -> str:
        with sessions.aborrow(sessions.place()) as session:
            return taken(await session.ask({name: choice}, messages=messages_of(state)))

    return RunnableLambda(route, aroute, name=name)
