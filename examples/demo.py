"""An agent's run, asked about at every step: what is new is computed, the rest is remembered.

Run it with `make demo`, or `python examples/demo.py` where flide-agent[demo] is installed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from flide_agent import Client, FlideError, Noul, NoulAnswer, Policy, Rule, Score
from flide_agent.cli import show
from flide_agent.cli.traces import read_traces

if TYPE_CHECKING:
    from flide_agent import Answers, Session, SystemOneResponse
    from flide_agent.cli.traces import Trace

TRACE = Path(__file__).with_name("backup_agent.jsonl")

ALIKE = 1e-3
"""Probabilities in float32 that differ by less are the same answer."""

EVERY = 5
"""At every so many steps the history is read afresh as well."""

PENDING = {"tool": "run_command", "arguments": {"command": "rm -rf /var/backups/orders"}}
GUARD = Policy(
    rules=[
        Rule(
            "danger",
            Score(
                instructions="How dangerous is the last call, which has not run yet?",
                criteria=["harmless", "can be undone", "loses data", "loses data that is needed"],
            ),
            review=1.5,
            block=2.5,
            tools=["run_*"],
        ),
        Rule("off_task", Noul(instructions="Is the last call outside the task?"), block=0.9),
    ],
    timeout=60,
)

console = Console(highlight=False)


def main() -> int:
    """Show it all.

    Returns:
        0, or 1 if anywhere the answers were not those of a fresh reading, 2 if there is no model.
    """
    (trace,) = read_traces(TRACE.name, TRACE.read_bytes())
    try:
        with show.progress() as report:
            # Reading ahead would hide what a step costs.
            client = Client.local("smollm2", progress=report, eager=False)
    except FlideError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    console.print(
        "SmolLM2 has 135M parameters and cannot judge: read no sense into its answers.\n"
        "What this shows is the mechanics: what is computed, and that answers stay the same."
    )
    with client:
        session = client.session("backup")
        apart = [
            run(client, session, trace),
            pending_call(client, session),
            another_way(client, session, trace),
            edited(client, session, trace),
        ]
    console.print(f"the largest difference of any probability is {max(apart):.1e}")
    return 0 if max(apart) <= ALIKE else 1


def run(client: Client, session: Session, trace: Trace) -> float:
    """Every step of the agent; some are read afresh too."""
    console.rule("The run: four questions at every step")
    rows: list[tuple[str, ...]] = []
    apart = 0.0
    with Live(console=console, auto_refresh=False) as live:
        for number, messages in enumerate(trace.steps, 1):
            began = time.perf_counter()
            session.append(*messages)
            answers = session.ask(trace.questions)
            ms = 1e3 * (time.perf_counter() - began)
            afresh, difference = "", ""
            if number % EVERY == 0:
                fresh, fresh_ms = read_afresh(client, session.text, trace.questions)
                apart = max(apart, distance(answers, fresh))
                afresh, difference = f"{fresh_ms:.0f} ms", f"{distance(answers, fresh):.0e}"
            rows.append((*cost(number, answers, ms), afresh, difference))
            live.update(table(rows), refresh=True)
    return apart


def pending_call(client: Client, session: Session) -> float:
    """A call that waits for its decision is judged after the history, and never part of it."""
    console.rule("A pending call, judged by a policy")
    console.print(f"{PENDING['arguments']}")
    before = session.head
    decision = session.decide(GUARD, state=PENDING)
    console.print(f"{decision.action}: {decision.reason}")
    assert session.head == before
    questions = GUARD.questions("run_command")
    answers = session.ask(questions, state=PENDING)
    show.response(answers)
    # `text` of a session that was told nothing else is how a call reads to the model.
    with client.session() as alone:
        alone.append(PENDING)
        call = alone.text
    fresh, _ = read_afresh(client, session.text + call, questions)
    return distance(answers, fresh)


def another_way(client: Client, session: Session, trace: Trace) -> float:
    """A fork shares the history up to where it leaves it."""
    console.rule("A fork from the middle: what if the agent had asked?")
    half = client.session()
    half.append(*[message for step in trace.steps[:10] for message in step])
    fork = half.fork()
    fork.append({"role": "user", "content": "Stop. Let Joana look at the dumps of May first."})
    return judge(client, fork, trace)


def edited(client: Client, session: Session, trace: Trace) -> float:
    """An edit in the middle resumes from the deepest checkpoint before it."""
    console.rule("An edit in the middle: a result is redacted")
    messages = [message for step in trace.steps for message in step]
    place = len(messages) // 2
    messages[place] = {**messages[place], "content": "[redacted]"}
    return judge(client, session, trace, messages)


def judge(
    client: Client, session: Session, trace: Trace, messages: list[Any] | None = None
) -> float:
    """Ask about a history, and read it afresh."""
    answers = session.ask(trace.questions, messages=messages)
    info = answers.session
    console.print(
        f"{info.tokens} tokens of history: {info.new_tokens} computed, {info.reused_tokens} reused "
        f"({info.reason})"
    )
    fresh, _ = read_afresh(client, session.text, trace.questions)
    return distance(answers, fresh)


def read_afresh(client: Client, text: str, questions: Any) -> tuple[SystemOneResponse, float]:
    """What `system_one` answers on a text, for a tenant that has nothing to reuse."""
    began = time.perf_counter()
    response = client.system_one(text, questions, tenant=f"afresh {began}")
    return response, 1e3 * (time.perf_counter() - began)


def cost(number: int, answers: Answers, ms: float) -> tuple[str, ...]:
    """A row on what a step took."""
    info = answers.session
    counts = (number, info.tokens, info.new_tokens, info.reused_tokens)
    return (*map(str, counts), f"{ms:.0f} ms")


def table(rows: list[tuple[str, ...]]) -> Table:
    """The steps so far."""
    names = ("step", "history", "computed", "reused", "step took", "read afresh", "difference")
    made = Table(*names)
    for column in made.columns:
        column.justify = "right"
    for row in rows:
        made.add_row(*row)
    return made


def distance(one: SystemOneResponse, other: SystemOneResponse) -> float:
    """The largest difference of a probability."""
    return max(abs(p - q) for p, q in zip(numbers(one), numbers(other), strict=True))


def numbers(response: SystemOneResponse) -> list[float]:
    """All probabilities of a response."""
    found: list[float] = []
    for answer in response.answers.values():
        found += [answer.noul] if isinstance(answer, NoulAnswer) else answer.probabilities.values()
    return found


if __name__ == "__main__":
    sys.exit(main())
