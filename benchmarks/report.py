"""Figures: kept with their targets, drawn as a table, written as JSON."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSIONS = ("flide-agent", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a case found.

    Attributes:
        case, name: what was measured.
        value, unit: how much of what; "x" is a ratio, and "" a small number.
        at_least, at_most: the target, if there is one.
    """

    case: str
    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        if self.at_most is not None:
            return self.value <= self.at_most
        return None

    @property
    def target(self) -> str:
        """The target in words."""
        if self.at_least is not None:
            return f"at least {_number(self.at_least, self.unit)}"
        if self.at_most is not None:
            return f"at most {_number(self.at_most, self.unit)}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """All there is to know about it."""
        return {
            "case": self.case,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "at_least": self.at_least,
            "at_most": self.at_most,
            "met": self.met,
        }


def machine() -> dict[str, Any]:
    """Where the figures were measured."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in _VERSIONS},
    }


def show(figures: Sequence[Figure], repeats: int, title: str = "") -> None:
    """Print the figures as a table, and where they are from."""
    table = Table(title=title or f"minimum of {repeats} interleaved repeats")
    for heading in ("figure", "value", "target", "met"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    words = {True: "yes", False: "[bold]no[/bold]", None: ""}
    for case, found in groupby(figures, key=lambda figure: figure.case):
        table.add_section()
        table.add_row(f"[bold]{case}[/bold]")
        for figure in found:
            value = _number(figure.value, figure.unit)
            table.add_row(f"  {figure.name}", value, figure.target, words[figure.met])
    console = Console(highlight=False)
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in machine().items()), soft_wrap=True)


def write(path: Path, figures: Sequence[Figure], repeats: int) -> None:
    """Write the figures and where they are from as JSON."""
    found = {
        "machine": machine(),
        "repeats": repeats,
        "figures": [figure.to_json() for figure in figures],
    }
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _number(value: float, unit: str) -> str:
    if not unit:
        return f"{value:.0e}"
    decimals = {"%": 1, "s": 3}.get(unit, 2)
    return f"{value:,} {unit}" if isinstance(value, int) else f"{value:,.{decimals}f} {unit}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
