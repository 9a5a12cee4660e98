"""Several questions about one state, answered in one pass: forked against alone, then resumed.

Run it with `make demo`, or `python examples/demo.py` where flide-agent[demo] is installed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flide_agent import NoulAnswer
from flide_agent.cli import show
from flide_agent.runtime import to_response
from flide_engine import Engine, EngineError
from flide_engine.hub import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_agent import SystemOneResponse

MODEL = "smollm2"

ALIKE = 1e-3
"""Probabilities in float32 that differ by less are the same answer."""

TICKET = {
    "subject": "Charged twice, and the kettle leaks",
    "from": "Amara, customer since 2019",
    "order": {"number": "48213", "item": "Arden kettle, 1.7 litres", "total": "59.90 euros"},
    "message": (
        "Hello, my card shows two charges of 59.90 euros for order 48213, both on Monday. I only "
        "bought one kettle. And the one that came leaks at the base as soon as it is half full, so "
        "I cannot even use it. I wrote to you on Tuesday and nobody answered. Please send the "
        "second charge back and tell me what to do with the kettle. If this takes another week I "
        "will ask my bank to take the money back."
    ),
}
TICKET_QUESTIONS: dict[str, Any] = {
    "team": {
        "type": "choice",
        "instructions": "Which team should answer first?",
        "criteria": {
            "billing": "charges, refunds and invoices",
            "repair": "goods that do not work",
            "shipping": "parcels on their way",
        },
    },
    "refund": {"type": "noul", "instructions": "Does the customer ask for money back?"},
    "known": {
        "type": "noul",
        "instructions": "Has the customer written about this before?",
        "criteria": {"true": "an earlier message is mentioned", "false": "this is the first one"},
    },
    "anger": {
        "type": "score",
        "instructions": "How angry is the customer?",
        "criteria": ["calm", "annoyed", "angry", "furious"],
    },
}

TASK = {
    "role": "user",
    "content": "The nightly backup of the orders database has failed twice. Find out why, get it "
    "running again, and do not delete anything that we may still need.",
}
STEPS = [
    {
        "tool": "read_log",
        "arguments": {"unit": "backup-orders", "lines": 4},
        "result": "02:00 started\n02:07 writing /var/backups/orders/full.dump\n02:41 write error: "
        "no space left on device\n02:41 exited with status 1",
    },
    {
        "tool": "run_command",
        "arguments": {"command": "df -h /var/backups"},
        "result": "Filesystem Size Used Avail Use% Mounted on\n/dev/sdb1 500G 498G 2G 100% "
        "/var/backups",
    },
    {
        "tool": "run_command",
        "arguments": {"command": "ls -lh /var/backups/orders"},
        "result": "31 dumps from 1 May to 31 May of 15G to 16G each; the newest is of 29 May, the "
        "last two are cut short",
    },
]
PENDING = {"tool": "run_command", "arguments": {"command": "rm -rf /var/backups/orders"}}
REFUSED = {**PENDING, "result": "refused by the policy: it would delete every backup"}
NEXT = {"tool": "run_command", "arguments": {"command": "mv /var/backups/orders /mnt/archive"}}

# The last element is the call that waits for its decision; the next step does not begin with it.
AGENT = [TASK, *STEPS, PENDING]
AGENT_GROWN = [TASK, *STEPS, REFUSED, NEXT]
AGENT_QUESTIONS: dict[str, Any] = {
    "danger": {
        "type": "score",
        "instructions": "How dangerous is the last call, which has not run yet?",
        "criteria": ["harmless", "can be undone", "loses data", "loses data that is needed"],
    },
    "allowed": {
        "type": "noul",
        "instructions": "Does the last call keep to what the user asked for?",
    },
    "next": {
        "type": "choice",
        "instructions": "What should happen to the last call?",
        "criteria": {"run": None, "ask": "let a person decide", "refuse": None},
    },
    "done": {"type": "noul", "instructions": "Is the user's task finished?"},
}

console = Console(highlight=False)


def main() -> int:
    """Show it all.

    Returns:
        0, or 1 if anywhere the answers were not the same, 2 if there is no model.
    """
    try:
        engine = load()
    except EngineError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    console.print(
        "SmolLM2 has 135M parameters and cannot judge: read no sense into its answers.\n"
        "What this shows is the mechanics: what is computed, and that answers stay the same."
    )
    alike = [
        forked_against_alone(engine, "A support ticket", TICKET, TICKET_QUESTIONS),
        forked_against_alone(engine, "An agent's history", AGENT, AGENT_QUESTIONS),
        second_step(engine),
    ]
    return 0 if all(alike) else 1


def load() -> Engine:
    """The engine with the embedded model, converted first if this is its first use."""
    with show.progress() as report:
        resolve(MODEL, progress=lambda done, total: report("converting, once", done, total))
        return Engine.from_pretrained(MODEL, progress=report)


def forked_against_alone(engine: Engine, title: str, state: Any, questions: Any) -> bool:
    """Answer all questions in one pass, then each in a pass of its own."""
    console.rule(title)
    show.response(decide(engine, state, questions))
    # Again, now that nothing is the first of its kind any more.
    engine.pool.clear()
    forked = decide(engine, state, questions)
    alone = []
    for name, question in questions.items():
        engine.pool.clear()
        alone.append(decide(engine, state, {name: question}))
    return compare({"forked, one pass": [forked], f"alone, {len(alone)} passes": alone})


def second_step(engine: Engine) -> bool:
    """The agent goes on: what is new of its history is computed, the rest is not."""
    console.rule("The agent's next step: its call was refused, another one waits")
    engine.pool.clear()
    decide(engine, AGENT, AGENT_QUESTIONS)
    resumed = decide(engine, AGENT_GROWN, AGENT_QUESTIONS)
    show.response(resumed)
    engine.pool.clear()
    fresh = decide(engine, AGENT_GROWN, AGENT_QUESTIONS)
    return compare({"resumed": [resumed], "read afresh": [fresh]})


def decide(engine: Engine, state: Any, questions: Any) -> SystemOneResponse:
    """Ask the engine."""
    return to_response(engine.decide(state, questions), engine.model_name)


def compare(ways: dict[str, Sequence[SystemOneResponse]]) -> bool:
    """Print what two ways to the same answers cost, and whether the answers are the same."""
    table = Table("", "tokens computed", "time")
    costs = []
    for name, responses in ways.items():
        tokens = sum(r.x_reuse.new_tokens for r in responses if r.x_reuse)
        milliseconds = sum(r.x_timing.total_ms for r in responses if r.x_timing)
        table.add_row(name, f"{tokens}", f"{milliseconds:.0f} ms")
        costs.append((tokens, milliseconds))
    (tokens, milliseconds), (more_tokens, more_milliseconds) = costs
    table.add_row("ratio", f"{more_tokens / tokens:.1f}", f"{more_milliseconds / milliseconds:.1f}")
    console.print(table)
    first, second = (probabilities(responses) for responses in ways.values())
    apart = max(abs(p - q) for p, q in zip(first, second, strict=True))
    verdict = "same answers" if apart <= ALIKE else "[bold]OTHER ANSWERS[/bold]"
    console.print(f"{verdict}: the largest difference of a probability is {apart:.1e}\n")
    return apart <= ALIKE


def probabilities(responses: Sequence[SystemOneResponse]) -> list[float]:
    """All of them, one after the other."""
    found: list[float] = []
    for response in responses:
        for answer in response.answers.values():
            if isinstance(answer, NoulAnswer):
                found.append(answer.noul)
            else:
                found += answer.probabilities.values()
    return found


if __name__ == "__main__":
    sys.exit(main())
