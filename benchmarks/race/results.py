"""Results as JSON lines, written as they come, so that a run that is cut short goes on later."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.race.cells import Cell
    from benchmarks.race.contenders import Setting
    from benchmarks.race.load import Seen

_LEAST_FOR_SLOPE = 20


class Book:
    """The results of one size.

    Args:
        size: of the model.
        path: where new ones go.
        earlier: files of runs before.
    """

    def __init__(self, size: str, path: Path, earlier: Iterable[Path]) -> None:
        self._size = size
        self._path = path
        files = [*earlier, *([path] if path.exists() else [])]
        self.lines = [line for file in files for line in read(file) if line["size"] == size]

    def has(self, contender: str, cell: Cell) -> bool:
        """Whether a cell was measured."""
        return find(self.lines, contender, cell) is not None

    def add(self, **line: Any) -> dict[str, Any]:
        """Write one down."""
        written = {"size": self._size, **line}
        self.lines.append(written)
        with self._path.open("a") as file:
            file.write(json.dumps(written) + "\n")
        return written


def read(path: Path) -> list[dict[str, Any]]:
    """All lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def find(lines: Iterable[dict[str, Any]], contender: str, cell: Cell) -> dict[str, Any] | None:
    """The newest result of a cell."""
    name = (contender, cell.workload, cell.mode, cell.count)
    keys = ("contender", "workload", "mode", "count")
    return next((x for x in reversed([*lines]) if tuple(x.get(k) for k in keys) == name), None)


def figures(setting: Setting, cell: Cell, seen: Seen) -> dict[str, Any]:
    """What a cell's line says."""
    seconds = sorted(reply.seconds for reply in seen.replies)
    bodies = [json.loads(reply.body) for reply in seen.replies]
    line: dict[str, Any] = {
        "contender": setting.contender,
        "setting": setting.name,
        "workload": cell.workload,
        "mode": cell.mode,
        "count": cell.count,
        "requests": len(seconds),
        "median_ms": _ms(statistics.median(seconds)),
        "p99_ms": _ms(quantile(seconds, 0.99)),
        "per_second": round(seen.finished / seen.seconds, 2),
        "tokens": round(statistics.fmean(b["usage"]["input_tokens"] for b in bodies)),
        "load_busy": round(seen.busy, 3),
    }
    if seen.appends:
        line["append_median_ms"] = _ms(statistics.median(seen.appends))
    if times := [body["x_timing"] for body in bodies if body.get("x_timing")]:
        line |= {name: round(statistics.median(t[name] for t in times), 3) for name in times[0]}
    if cell.workload == "agents":
        line |= _growth(bodies, seconds=[reply.seconds for reply in seen.replies])
    return line


def _growth(bodies: Sequence[dict[str, Any]], seconds: Sequence[float]) -> dict[str, float]:
    """How much longer a step takes for each thousand tokens of history."""
    thousands = [body["usage"]["input_tokens"] / 1e3 for body in bodies]
    if len(set(thousands)) < _LEAST_FOR_SLOPE:
        return {}
    found = {"ms_per_1000": _slope(thousands, [1e3 * each for each in seconds])}
    engine = [body["x_timing"]["run_ms"] for body in bodies if body.get("x_timing")]
    if len(engine) == len(bodies):
        found["engine_ms_per_1000"] = _slope(thousands, engine)
    return found


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    return round(statistics.linear_regression(x, y).slope, 4)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of numbers in their order."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)
