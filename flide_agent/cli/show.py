"""Answers and progress, drawn for people."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.bar import Bar
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from flide_agent import ChoiceAnswer, NoulAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flide_agent import Answer, SystemOneResponse

_BAR = 20
_NAME = 30
_ROWS = 10


def response(answered: SystemOneResponse) -> None:
    """Print answers as a table with a bar for every probability, then what they cost."""
    table = Table("question", "type", "answer", "probabilities", "confidence")
    for name, answer in answered.answers.items():
        confidence = "" if isinstance(answer, NoulAnswer) else f"{answer.confidence:.3f}"
        table.add_row(_text(name), answer.type, _verdict(answer), _bars(answer), confidence)
    console = Console(highlight=False)
    console.print(table)
    console.print(_text(_cost(answered), limit=None))


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Draw bars on stderr, one for every stage that is reported, and clear them at the end.

    Yields:
        What to call with a stage, how much of it is done, and how much there is.
    """
    console = Console(stderr=True)
    stages: dict[str, TaskID] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage)
            bars.update(stages[stage], completed=done, total=total)

        yield report


def _verdict(answer: Answer) -> Text:
    if isinstance(answer, NoulAnswer):
        return Text("yes" if answer.noul >= 0.5 else "no")
    if isinstance(answer, ChoiceAnswer):
        return _text(answer.choice)
    return Text(f"{answer.score:.2f} of {len(answer.legend) - 1}")


def _bars(answer: Answer) -> Table:
    grid = Table.grid(padding=(0, 1))
    options = _options(answer)
    for name, probability in options[:_ROWS]:
        bar = Bar(size=1, begin=0, end=probability, width=_BAR)
        grid.add_row(_text(name), bar, f"{probability:.3f}")
    if rest := options[_ROWS:]:
        grid.add_row(f"{len(rest)} more", "", f"{sum(p for _, p in rest):.3f}")
    return grid


def _options(answer: Answer) -> list[tuple[str, float]]:
    if isinstance(answer, NoulAnswer):
        return [("yes", answer.noul), ("no", 1 - answer.noul)]
    if isinstance(answer, ChoiceAnswer):
        return sorted(answer.probabilities.items(), key=lambda option: -option[1])
    return [
        (f"{level} {_plain(answer.legend[level])}", p) for level, p in answer.probabilities.items()
    ]


def _plain(description: object) -> str:
    return description if isinstance(description, str) else json.dumps(description)


def _cost(answered: SystemOneResponse) -> str:
    parts = [f"{answered.usage.input_tokens} tokens read"]
    if reuse := answered.x_reuse:
        source = f" ({reuse.source})" if reuse.reused_tokens else ""
        parts = [f"{reuse.new_tokens} tokens computed", f"{reuse.reused_tokens} reused{source}"]
    if timing := answered.x_timing:
        parts.append(f"{timing.total_ms:.0f} ms")
    return f"{answered.model}: {', '.join(parts)}"


def _text(text: str, limit: int | None = _NAME) -> Text:
    """Text as it is, not as markup, on one line and without what could drive the terminal."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return Text(line if limit is None or len(line) <= limit else line[: limit - 1] + "…")
