"""Speed on this machine's CPU, beside transformers: `python -m benchmarks.cpu`."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import report
from benchmarks.cases import CASES
from benchmarks.timing import AnswersDiffer, console

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases, print the figures and return 1 if anywhere the answers were not the same."""
    args = _parser().parse_args(argv)
    figures: list[report.Figure] = []
    failed = False
    for name in args.only or CASES:
        began = time.perf_counter()
        try:
            figures += CASES[name](args.repeats)
        except AnswersDiffer as error:
            console.print(f"[bold]{error}[/bold]")
            failed = True
        console.print(f"{name}: done in {time.perf_counter() - began:.0f} s")
        # Models hold cycles; the next case should not find this one's in memory.
        gc.collect()
    report.show(figures, args.repeats)
    if args.json:
        report.write(args.json, figures, args.repeats)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cpu",
        description="Measure the engine beside transformers, in turn, after comparing all answers.",
        epilog="example: python -m benchmarks.cpu --only fork --repeats 7 --json figures.json",
    )
    parser.add_argument(
        "--only", action="append", choices=list(CASES), help="run this case; may be given again"
    )
    parser.add_argument(
        "--repeats",
        type=_positive,
        default=5,
        metavar="N",
        help="times of each contender, of which the fastest counts; default: %(default)s",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} repeats measure nothing; 5 is a good number")
    return number


if __name__ == "__main__":
    sys.exit(main())
