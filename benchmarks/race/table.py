"""Results as the table of docs/performance.md: `python -m benchmarks.race.table FILE...`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.race.cells import CELLS, MOST_MS_PER_1000, TARGETS, Target
from benchmarks.race.results import find, read

if TYPE_CHECKING:
    from collections.abc import Sequence

Lines = list[dict[str, Any]]

_NONE = "-"
_OFF = " **(missed)**"


def report(lines: Lines) -> str:
    """All that is known of each size, as Markdown."""
    sizes = list(dict.fromkeys(line["size"] for line in lines))
    parts = []
    for size in sizes:
        own = [line for line in lines if line["size"] == size]
        parts += [f"### {size}", _ratios(size, own), _cells(own), _rest(own)]
    return "\n\n".join(parts) + "\n"


def _ratios(size: str, lines: Lines) -> str:
    heads = [
        "workload", "median, ours, ms", "flide", "ratio", "wanted", "a second, ours", "flide",
        "ratio", "wanted",
    ]  # fmt: skip
    return _table(heads, [_ratio_row(size, lines, target) for target in TARGETS])


def _ratio_row(size: str, lines: Lines, target: Target) -> list[str]:
    row = [target.title]
    for ours, peers, name, wanted, sign in (
        (target.latency, target.peers[0], "median_ms", target.most_latency.get(size), -1),
        (target.throughput, target.peers[1], "per_second", target.least_throughput.get(size), 1),
    ):
        a, b = find(lines, "ours", ours), find(lines, "peer", peers)
        row += [_number(a, name), _number(b, name)]
        ratio = a[name] / b[name] if a and b and b[name] else None
        off = ratio is not None and wanted is not None and sign * (ratio - wanted) < 0
        row.append(_NONE if ratio is None else f"{ratio:.2f}{_OFF if off else ''}")
        row.append(_NONE if wanted is None else f"{'≥' if sign > 0 else '≤'} {wanted:g}")
    return row


def _cells(lines: Lines) -> str:
    heads = [
        "load", "ours: median / p99, ms", "a second", "plan / run, ms", "flide: median / p99, ms",
        "a second", "setting",
    ]  # fmt: skip
    rows = []
    for cell in CELLS:
        ours, peer = find(lines, "ours", cell), find(lines, "peer", cell)
        if ours or peer:
            rows.append(
                [
                    str(cell), _both(ours, "median_ms", "p99_ms"), _number(ours, "per_second"),
                    _both(ours, "plan_ms", "run_ms"), _both(peer, "median_ms", "p99_ms"),
                    _number(peer, "per_second"), peer["setting"] if peer else _NONE,
                ]
            )  # fmt: skip
    return _table(heads, rows)


def _rest(lines: Lines) -> str:
    """Start-up, memory, how answers compare with those asked alone, what a history costs."""
    said = []
    for line in lines:
        who = f"{line.get('contender')}, {line.get('setting')}"
        if "first_answer_s" in line:
            said.append(
                f"- {who}: first answer after {line['first_answer_s']:.1f} s, "
                f"kernel cache {line['kernels']}."
            )
        elif "host_mib" in line or "gpu_mib" in line:
            gpu, host = line.get("gpu_mib"), line.get("host_mib")
            said.append(f"- {who}: {gpu or _NONE} MiB of the GPU, {host or _NONE} of the host.")
        elif "engine_ms_per_1000" in line:
            growth = line["engine_ms_per_1000"]
            off = _OFF if growth > MOST_MS_PER_1000 else ""
            said.append(
                f"- {line['count']} agents, {line['mode']}: engine time grows by {growth:.3f} ms "
                f"for each thousand tokens (at most {MOST_MS_PER_1000:g}{off})."
            )
        elif "checked" in line:
            off = _OFF if line["most_apart"] > line["bound"] else ""
            said.append(
                f"- {line['checked']}, {line['count']} {line['mode']}: {line['answers']} answers "
                f"are at most {line['most_apart']:.2g} (median {line['median_apart']:.2g}) in "
                f"total variation from those asked alone; {line['bound']:g} is allowed{off}."
            )
    return "\n".join(said)


def _both(line: dict[str, Any] | None, first: str, second: str) -> str:
    return f"{_number(line, first)} / {_number(line, second)}"


def _number(line: dict[str, Any] | None, name: str) -> str:
    return _NONE if line is None or name not in line else f"{line[name]:,.4g}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race.table", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    args = parser.parse_args()
    print(report([line for file in args.files for line in read(file)]), end="")


if __name__ == "__main__":
    main()
