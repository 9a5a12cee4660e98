"""`flide-agent replay`: recorded agents, asked again step by step."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.bar import Bar
from rich.console import Console
from rich.live import Live
from rich.table import Table

from flide_agent import InvalidInput, TooLarge
from flide_agent.cli import ask, show
from flide_agent.cli.inputs import read_file
from flide_agent.cli.traces import Trace, read_traces
from flide_agent.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

_EPILOG = """\
example:
  flide-agent replay --model smollm2 --max-tokens 2000 agents.jsonl

where every line of agents.jsonl is one agent,
  {"steps": ["You are …", "ACTION: ls …"], "questions": {"done": {"type": "noul", …}}}
or its messages in OpenAI's form,
  [{"role": "user", "content": "…"}, {"role": "assistant", "tool_calls": […]}, …]

With --json every step is one line of agent, step, history_tokens, new_tokens, reused_tokens, tier
and ms.
"""

_SHOWN = 12
"""Steps that the live table shows."""
_BARS = 20
_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Step:
    """What one step took.

    Attributes:
        agent, step: counted from 1.
        history_tokens: the history it asked about.
        new_tokens, reused_tokens: computed, questions included, and taken from checkpoints.
        tier: where the reused ones came from.
        ms: from the append to the answers.
    """

    agent: int
    step: int
    history_tokens: int
    new_tokens: int
    reused_tokens: int
    tier: str
    ms: float


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the command's arguments."""
    parser = commands.add_parser(
        "replay",
        help="run recorded agents step by step, and see what each step costs",
        description="Append what happened at every step of a recorded agent, ask, and show how "
        "much was new and how much was reused.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trace", metavar="TRACE.jsonl", help="one agent a line")
    parser.add_argument(
        "--model",
        default="smollm2",
        metavar="M",
        help="a model directory, or a name (default: smollm2)",
    )
    parser.add_argument("--device", help="cpu or cuda; default: cpu")
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64", "bfloat16"),
        help="of products; default: float32 on a CPU, bfloat16 on a GPU",
    )
    parser.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="go on to the next agent when a history has more tokens than this",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line a step")


def run(args: argparse.Namespace, load_engine: ask.LoadEngine | None = None) -> int:
    """Replay and print.

    Args:
        args: as `add_parser` describes them.
        load_engine: stands in for `Engine.from_pretrained`.

    Raises:
        FlideError: the input is at fault, or the engine refuses it.
    """
    if args.max_tokens is not None and args.max_tokens < 1:
        raise InvalidInput(f"--max-tokens is {args.max_tokens}, but must be at least 1.")
    traces = list(read_traces(args.trace, read_file(args.trace)))
    load = load_engine or ask.installed_engine()
    # Libraries may print while a model loads, and stdout belongs to the answer.
    with contextlib.redirect_stdout(sys.stderr), show.progress() as report:
        engine = ask.load(load, args, report)
    # Reading ahead would hide what a step costs.
    with engine, Client.local(engine, eager=False) as client:
        steps = replay(client, traces, args.max_tokens)
        if args.json:
            for step in steps:
                print(json.dumps(asdict(step)), flush=True)
        else:
            _draw(steps)
    return 0


def replay(client: Client, traces: list[Trace], max_tokens: int | None) -> Iterator[Step]:
    """Every step of every agent, as it is done."""
    for agent, trace in enumerate(traces, 1):
        with client.session() as session:
            for number, messages in enumerate(trace.steps, 1):
                began = time.perf_counter()
                try:
                    session.append(*messages)
                    info = session.ask(trace.questions).session
                except TooLarge as error:
                    print(f"agent {agent} ends before step {number}: {error}", file=sys.stderr)
                    break
                ms = 1e3 * (time.perf_counter() - began)
                yield Step(
                    agent,
                    number,
                    info.tokens,
                    info.new_tokens,
                    info.reused_tokens,
                    info.source,
                    round(ms, 3),
                )
                if max_tokens is not None and info.tokens > max_tokens:
                    break


def _draw(steps: Iterator[Step]) -> None:
    console = Console(highlight=False)
    done: list[Step] = []
    with Live(console=console, auto_refresh=False) as live:
        for step in steps:
            done.append(step)
            live.update(_table(done[-_SHOWN:]), refresh=True)
    console.print(_chart(done))
    new, reused = (sum(getattr(s, name) for s in done) for name in ("new_tokens", "reused_tokens"))
    console.print(
        f"{len(done)} steps: {new} tokens computed, {reused} reused "
        f"({reused / max(new + reused, 1):.1%})"
    )


def _table(steps: list[Step]) -> Table:
    table = Table("agent", "step", "history", "new", "reused", "tier", "ms")
    for column in table.columns:
        column.justify = "right"
    for s in steps:
        counts = (s.agent, s.step, s.history_tokens, s.new_tokens, s.reused_tokens)
        table.add_row(*map(str, counts), s.tier, f"{s.ms:.1f}")
    return table


def _chart(steps: list[Step]) -> Table:
    """Mean latency against the history's length."""
    longest = max(step.history_tokens for step in steps)
    width = -(-(longest + 1) // _BARS)
    groups: dict[int, list[float]] = {}
    for step in steps:
        groups.setdefault(step.history_tokens // width, []).append(step.ms)
    means = {group: sum(ms) / len(ms) for group, ms in sorted(groups.items())}
    slowest = max(means.values())
    table = Table("history, tokens", "mean ms of a step", "", box=None)
    for group, mean in means.items():
        bar = Bar(size=slowest, begin=0, end=mean, width=_WIDTH)
        table.add_row(f"{group * width} to {(group + 1) * width - 1}", bar, f"{mean:.1f}")
    return table
