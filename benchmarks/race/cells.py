"""What is measured: a workload under so much load, and how much better we mean to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Mode = Literal["clients", "histories", "sessions", "busy sessions"]
"""How requests are made.

clients: each sends its next request once the last is answered, none like another.
histories: each is an agent that sends its whole history at every step.
sessions: each is an agent that appends a step, pauses, and asks.
busy sessions: the same without the pause, for how many steps a second there may be.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload under one load.

    Attributes:
        workload: the name of its file.
        mode: how requests are made.
        count: clients or agents at the same time.
    """

    workload: str
    mode: Mode
    count: int

    def __str__(self) -> str:
        return f"{self.workload}, {self.count} {self.mode}"


_SMALL = ("race1", "race4", "di")
_LARGE = ("multirc48", "quality1", "quality18")

CLIENTS = [Cell(name, "clients", count) for name in _SMALL for count in (1, 8, 64)] + [
    Cell(name, "clients", count) for name in _LARGE for count in (1, 8)
]
HISTORIES = [Cell("agents", "histories", count) for count in (1, 8)]
SESSIONS = [
    Cell("agents", "sessions", 1),
    Cell("agents", "sessions", 8),
    Cell("agents", "busy sessions", 8),
]
CELLS = [*CLIENTS, *HISTORIES, *SESSIONS]


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table: two of our cells beside two of the peer's.

    Attributes:
        title: of the line.
        latency, throughput: our cells, of which the median and the requests a second are compared.
        peers: the peer's cells.
        most_latency, least_throughput: the ratios ours / peer that are wanted, by size.
    """

    title: str
    latency: Cell
    throughput: Cell
    peers: tuple[Cell, Cell]
    most_latency: dict[str, float]
    least_throughput: dict[str, float]


def _clients(name: str, latency: tuple[float, float], throughput: tuple[float, float]) -> Target:
    own = [cell for cell in CLIENTS if cell.workload == name]
    return Target(name, own[0], own[-1], (own[0], own[-1]), _by_size(latency), _by_size(throughput))


def _by_size(ratios: tuple[float, float]) -> dict[str, float]:
    return dict(zip(("0.8B", "4B"), ratios, strict=True))


TARGETS = [
    _clients("race1", (0.5, 0.65), (1.3, 1.1)),
    _clients("race4", (0.5, 0.65), (1.3, 1.1)),
    _clients("di", (0.5, 0.65), (1.3, 1.1)),
    _clients("multirc48", (0.55, 0.9), (1.3, 1.1)),
    _clients("quality1", (0.65, 0.9), (1.2, 1.05)),
    _clients("quality18", (0.65, 0.9), (1.2, 1.05)),
    Target(
        "agents, whole histories", HISTORIES[0], HISTORIES[1], (HISTORIES[0], HISTORIES[1]),
        _by_size((0.4, 0.5)), _by_size((2.5, 1.8)),
    ),
    Target(
        "agents, sessions", SESSIONS[0], SESSIONS[2], (HISTORIES[0], HISTORIES[1]),
        _by_size((0.25, 0.35)), _by_size((3, 2)),
    ),
]  # fmt: skip

MOST_MS_PER_1000 = 0.15
"""Of engine time that a step may take longer for each thousand tokens of history."""


def chosen(cells: Iterable[Cell], only: Iterable[str]) -> list[Cell]:
    """Those of the cells whose workload or mode is named; all of them where none is."""
    names = set(only)
    return [c for c in cells if not names or c.workload in names or c.mode in names]
