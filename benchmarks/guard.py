"""What a guard of an agent costs beside the engine: `python -m benchmarks.guard`.

An agent makes one tool call a step, once with the guard and once without, in turn. A step lasts
from one call of the model to the next; what the engine's side takes is left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from benchmarks import report
from flide_agent import Client, Noul, Policy, Rule
from langchain_flide import DecisionMiddleware
from tests.langchain.support import ScriptedChat, ScriptedTransport, calls

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUNDS_MS = {60: 2.0, 200: None}
"""By length of the thread: what a guarded call may take more than one without a guard."""

POLICY = Policy(
    [
        Rule("danger", Noul(instructions="Is it dangerous?"), block=0.9, review=0.6, tools=["*"]),
        Rule("off_task", Noul(instructions="Is it outside the task?"), block=0.9, tools=["*"]),
    ]
)


class TimedTransport(ScriptedTransport):
    """Knows how long it took."""

    seconds = 0.0

    def send(self, call: Any, *, tenant: str | None, timeout: float | None) -> Any:
        """Reply at once."""
        began = time.perf_counter()
        try:
            return super().send(call, tenant=tenant, timeout=timeout)
        finally:
            self.seconds += time.perf_counter() - began


class TimedChat(ScriptedChat):
    """Notes when it is called, and what the transport had taken until then."""

    transport: Any
    times: list[tuple[float, float]] = Field(default_factory=list)

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        self.times.append((time.perf_counter(), self.transport.seconds))
        return super()._generate(*args, **kwargs)


@tool
def run_command(command: str) -> str:
    """Run a command in a shell."""
    return f"$ {command}\n" + "total 0\n" * 20


def steps_ms(messages: int, *, guarded: bool) -> list[float]:
    """Milliseconds of every step of a thread, without the engine's side."""
    transport = TimedTransport()
    lines = [
        calls(("run_command", {"command": f"ls -l /srv/{n}"}), first=n)
        for n in range(messages // 2)
    ]
    chat = TimedChat(lines=[*lines, AIMessage("done")], transport=transport)
    guard = DecisionMiddleware(POLICY, decisions=Client(transport=transport))
    agent: Any = create_agent(
        chat,
        tools=[run_command],
        middleware=[guard] if guarded else [],
        system_prompt="You keep a server tidy.",
        checkpointer=InMemorySaver(),
    )
    given = {"messages": [HumanMessage("List every directory of /srv.")]}
    agent.invoke(given, {"configurable": {"thread_id": "t"}})
    spent = [at - engine for at, engine in chat.times]
    return [1e3 * (end - begin) for begin, end in pairwise(spent)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if a guarded call costs more than the bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="default: %(default)s")
    repeats = parser.parse_args(argv).repeats
    figures: list[report.Figure] = []
    for messages, bound in BOUNDS_MS.items():
        found: dict[bool, list[float]] = {False: [], True: []}
        steps_ms(messages, guarded=True)
        for _ in range(repeats):
            for guarded, steps in found.items():
                steps += steps_ms(messages, guarded=guarded)
        bare, with_guard = (statistics.median(steps) for steps in found.values())
        case = f"a thread of {messages} messages"
        figures += [
            report.Figure(case, "a step without a guard", bare, "ms"),
            report.Figure(
                case, "a guard's share of a step", with_guard - bare, "ms", at_most=bound
            ),
        ]
    report.show(figures, repeats, f"medians over the steps of {repeats} interleaved threads")
    return int(any(figure.met is False for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
