"""Decisions asked for by steps that know nothing of threads or event loops.

What the middleware does is written once, as generators: they yield what is to be decided, or the
request that a handler should run, and are sent the decisions, or the handler's result.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from langchain_core.runnables.config import ensure_config, get_executor_for_config

from flide_agent.history import digest, messages_to_history

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from langchain_core.messages import ToolCall
    from langgraph.runtime import ExecutionInfo

    from flide_agent import Decision, Policy
    from langchain_flide.sessions import Place, Sessions

On = Literal["input", "tool", "output"]
"""Where a guard stands: before the model, before a tool, after the model's last word."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pending:
    """What is to be decided.

    Attributes:
        on: where.
        messages: the history, system prompt first.
        call: the tool call, if it is about one.
        key: makes it the same decision when the step is run again; None if it may not be.
    """

    on: On
    messages: Sequence[Any]
    call: ToolCall | None = None
    key: str | None = None

    @property
    def tool(self) -> str | None:
        """The tool of the call."""
        return None if self.call is None else self.call["name"]

    @property
    def state(self) -> dict[str, Any] | None:
        """The call as it is judged: whole, and without the id, which is drawn at random."""
        call = self.call
        return None if call is None else {"tool": call["name"], "arguments": call["args"]}


@dataclass(frozen=True, slots=True)
class Run:
    """A request that the handler should run."""

    request: Any


Steps: TypeAlias = "Generator[Run | list[Pending], Any, T]"
"""Requests and questions out, results and decisions in, and a result at the end."""


class Desk:
    """Decides by a policy, in whichever session the caller runs.

    Args:
        policy: the rules.
        sessions: where the histories are.
        since: "last" judges only what came after the last decision; None all of the history.
    """

    def __init__(self, policy: Policy, sessions: Sessions, since: Literal["last"] | None) -> None:
        self.policy = policy
        self._digest = policy.digest
        self.sessions = sessions
        self._since = since

    def asks_about(self, tool: str | None) -> bool:
        """Whether any rule applies, to calls of a tool or without a call."""
        return bool(self.policy.rules_for(tool))

    def decide(self, pending: Sequence[Pending]) -> list[Decision]:
        """Decide each by itself; several at the same time."""
        place = self.sessions.place()
        if len(pending) == 1:
            return [self._decide(pending[0], place)]
        with get_executor_for_config(ensure_config()) as executor:
            return list(executor.map(self._decide, pending, [place] * len(pending)))

    async def adecide(self, pending: Sequence[Pending]) -> list[Decision]:
        """`decide` for an event loop."""
        place = self.sessions.place()
        return await asyncio.gather(*(self._adecide(one, place) for one in pending))

    def _decide(self, pending: Pending, place: Place) -> Decision:
        with self.sessions.borrow(place) as session:
            return session.decide(self.policy, **self._asked(pending))

    async def _adecide(self, pending: Pending, place: Place) -> Decision:
        with self.sessions.aborrow(place) as session:
            return await session.decide(self.policy, **self._asked(pending))

    def _asked(self, pending: Pending) -> dict[str, Any]:
        return {
            "messages": pending.messages,
            "state": pending.state,
            "tool": pending.tool,
            "since": self._since,
            "key": pending.key,
        }

    def subject(self, call: ToolCall) -> str:
        """A digest of what is judged about a call: by which policy, and all of its arguments."""
        judged = [self._digest, call["name"], call["args"]]
        return digest(json.dumps(judged, sort_keys=True, default=repr))

    def keyed(self, pending: Pending, info: ExecutionInfo | None) -> Pending:
        """What is to be decided, with a key made of the step that asks and of what it asks about.

        The step's checkpoint fixes the history, but for what the model says in that step and for
        the prompt; so both ends of the history are in the key too.
        """
        if info is None or info.thread_id is None:
            return pending
        call = pending.call
        ends = messages_to_history([pending.messages[0], pending.messages[-1]])
        about = digest("".join(turn.text for turn in ends))
        subject = self._digest if call is None else self.subject(call)
        call_id = None if call is None else call["id"]
        step = (info.thread_id, info.checkpoint_id, info.task_id, call_id, subject, about)
        return replace(pending, key=json.dumps(step, separators=(",", ":")))


def drive(steps: Steps[T], desk: Desk, handler: Callable[[Any], Any] | None = None) -> T:
    """Run the steps, waiting for every decision."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Run):
                assert handler is not None
                step = steps.send(handler(step.request))
            else:
                step = steps.send(desk.decide(step))
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(
    steps: Steps[T], desk: Desk, handler: Callable[[Any], Awaitable[Any]] | None = None
) -> T:
    """Run the steps, awaiting every decision."""
    try:
        step = next(steps)
        while True:
            if isinstance(step, Run):
                assert handler is not None
                step = steps.send(await handler(step.request))
            else:
                step = steps.send(await desk.adecide(step))
    except StopIteration as end:
        result: T = end.value
        return result
