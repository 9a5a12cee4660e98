"""The race of one size, as far as the time goes; see the package."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.race import contenders, load
from benchmarks.race.cells import Cell, chosen
from benchmarks.race.process import NoServer, Server
from benchmarks.race.results import Book, figures
from benchmarks.race.samples import write_samples
from benchmarks.race.table import report
from benchmarks.shapes import SIZES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.race.contenders import Setting
    from benchmarks.race.load import Driver

_CHECK_SECONDS = 60
"""For our answers to be compared; no server is kept running for it."""


class Race:
    """One size's race.

    Args:
        args: as the command line gives them.
        book: where results go.
    """

    def __init__(self, args: argparse.Namespace, book: Book) -> None:
        self._args = args
        self._book = book
        self._ends = time.monotonic() + args.limit
        self._samples = args.out / f"samples-{args.size}.jsonl"
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def run(self, setting: Setting) -> None:
        """Measure what a setting is for and was not measured yet."""
        left = [
            cell
            for cell in chosen(setting.cells, self._args.only)
            if not self._book.has(setting.contender, cell)
        ]
        if not left or not self._time_for(2 * self._cell_seconds):
            return
        say(f"{setting.contender}, {setting.name}: {len(left)} cells")
        kernels = self._args.work / "kernels" / setting.contender
        kept = "warm" if any(path.is_file() for path in kernels.rglob("*")) else "cold"
        with Server(
            setting, self._args.out / f"{setting.contender}-{self._args.size}.log"
        ) as server:
            first = server.first_answer(self._first_body(setting))
            self._note(setting, first_answer_s=round(first, 2), kernels=kept)
            for cell in left:
                if not self._time_for(self._cell_seconds):
                    say("the time is over: run again for the rest")
                    break
                self._measure(setting, cell)
            self._note(setting, **server.memory())

    def start_again(self, setting: Setting) -> None:
        """See how soon a server answers whose kernels were compiled before."""
        warm = [x for x in self._book.lines if x.get("kernels") == "warm"]
        if any(x["contender"] == setting.contender for x in warm) or not self._time_for(60):
            return
        with Server(
            setting, self._args.out / f"{setting.contender}-{self._args.size}.log"
        ) as server:
            first = server.first_answer(self._first_body(setting))
            self._note(setting, first_answer_s=round(first, 2), kernels="warm")

    def check(self, model: Path) -> None:
        """Compare our answers with those of an engine that is asked nothing else."""
        if not self._samples.exists() or not self._time_for(_CHECK_SECONDS):
            return
        say("our answers, asked alone")
        command = [
            *(sys.executable, "-m", "benchmarks.race.alone", str(model), str(self._samples)),
            *("--device", self._args.device),
        ]
        setting = contenders.ours(self._machine, model, self._args.wheels)[0]
        found = subprocess.run(
            command, env=dict(setting.environment), stdout=subprocess.PIPE, check=True, text=True
        )
        for line in found.stdout.splitlines():
            say(line)
            self._book.add(**json.loads(line))
        self._samples.unlink()

    @property
    def _machine(self) -> contenders.Machine:
        return contenders.Machine(self._args.device, self._args.work)

    @property
    def _cell_seconds(self) -> float:
        return float(self._args.seconds + load.WARM_SECONDS + 1)

    def _time_for(self, seconds: float) -> bool:
        return bool(time.monotonic() + seconds < self._ends)

    def _measure(self, setting: Setting, cell: Cell) -> None:
        driver = self._driver(cell)
        seen = load.run(setting.url, setting.fields, driver, cell.count, self._args.seconds)
        say(json.dumps(self._book.add(**figures(setting, cell, seen))))
        if setting.contender == "ours":
            write_samples(self._samples, cell, seen.replies)

    def _driver(self, cell: Cell) -> Driver:
        rows = self._workload(cell.workload)
        match cell.mode:
            case "clients":
                return load.clients(rows)
            case "histories":
                return load.histories(rows)
            case "sessions" | "busy sessions":
                return load.sessions(rows, pause=cell.mode == "sessions")

    def _first_body(self, setting: Setting) -> bytes:
        row = self._workload("race1")[0]
        body = {**setting.fields, "state": row["state"], "questions": row["questions"]}
        return json.dumps(body).encode()

    def _workload(self, name: str) -> list[dict[str, Any]]:
        if name not in self._rows:
            lines = (self._args.workloads / f"{name}.jsonl").read_text().splitlines()
            self._rows[name] = [json.loads(line) for line in lines]
        return self._rows[name]

    def _note(self, setting: Setting, **found: Any) -> None:
        line = self._book.add(contender=setting.contender, setting=setting.name, **found)
        say(json.dumps(line))


def say(text: str) -> None:
    """Tell people; the results are in files."""
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Race, and print the table; 1 if a server did not come up or did not answer."""
    args = _arguments(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)
    book = Book(args.size, args.out / f"race-{args.size}.jsonl", args.earlier)
    race = Race(args, book)
    model = args.work / f"checkpoint-{args.size}"
    # In a process of its own: what makes a checkpoint takes the GPU's memory.
    command = [sys.executable, "-m", "benchmarks.race.checkpoint", args.size, str(model)]
    machine = contenders.Machine(args.device, args.work)
    failed = 0
    ours = contenders.ours(machine, model, args.wheels)
    environment = dict(ours[0].environment)
    subprocess.run(command, env=environment, check=True)
    settings = [*ours, *_peers(args, machine, model)]
    for setting in settings:
        if args.contender not in (None, setting.contender):
            continue
        try:
            race.run(setting)
            if setting.contender == "ours":
                race.start_again(setting)
                race.check(model)
        except (NoServer, load.Refused) as error:
            say(f"{setting.contender}, {setting.name}: {error}")
            failed = 1
    table = report(book.lines)
    (args.out / f"race-{args.size}.md").write_text(table)
    print(table, flush=True)
    return failed


def _peers(args: argparse.Namespace, machine: contenders.Machine, model: Path) -> list[Setting]:
    if args.peer_url is not None:
        return contenders.elsewhere(args.peer_url, args.peer_model)
    return contenders.peer(machine, model, args.peer_wheels) if args.peer_wheels else []


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race", description=__doc__)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--workloads", type=Path, required=True, help="with race1.jsonl and others")
    parser.add_argument("--out", type=Path, required=True, help="for results and logs")
    parser.add_argument("--wheels", type=Path, help="of what our server needs; else as installed")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--peer-wheels", type=Path, help="of flide and what it needs")
    peer.add_argument(
        "--peer-url", help="another System One server in its place, which runs already"
    )
    parser.add_argument("--peer-model", help="the name of its model, where it wants one")
    parser.add_argument("--contender", choices=("ours", "peer"), help="only this one")
    parser.add_argument("--only", nargs="*", default=[], help="workloads or modes; default: all")
    parser.add_argument(
        "--earlier", nargs="*", type=Path, default=[], help="results that need no repeating"
    )
    parser.add_argument("--seconds", type=float, default=8, help="of a cell; default: %(default)s")
    parser.add_argument(
        "--limit", type=float, default=560, help="seconds for all of it; default: %(default)s"
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="of our server")
    parser.add_argument(
        "--work", type=Path, default=Path("/tmp/flide-race"), help="for checkpoints and kernels"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
