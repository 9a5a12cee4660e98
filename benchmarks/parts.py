"""The engine without HTTP by parts, one request at a time: `python -m benchmarks.parts MODEL FILE`.

FILE has a request a line, `{"state": ..., "questions": {...}}`. Times are medians in milliseconds;
what a part costs is also seen by leaving it out (`--without`).
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table

from flide_engine import Engine
from flide_engine.backend import make_backend
from flide_engine.executors import GraphExecutor
from flide_engine.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flide_engine import Request
    from flide_engine.backend import Backend
    from flide_engine.models import Decoder

MAX_ROUND_TOKENS = 8192
PARTS = ("plan", "lease", "launch", "device", "wait", "collect", "all")
"""Text to tokens; pages and states; packing, the copy and the replay; what the device takes, beside
the next; until the result is here; probabilities and checkpoints."""


def requests(engine: Engine, line: dict[str, Any], *, forks: bool) -> list[Request]:
    """One request for all questions, or one for each."""
    questions = line["questions"]
    asked = [questions] if forks else [{name: value} for name, value in questions.items()]
    return [engine.plan(line["state"], some) for some in asked]


class Clock:
    """The device's own time between two places of its stream, where it has one."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._events: list[Any] = []
        if on_gpu:
            self._events = [torch.cuda.Event(True), torch.cuda.Event(True)]  # type: ignore[no-untyped-call]

    def mark(self, which: int) -> None:
        """Mark a place: 0 the first, 1 the last."""
        if self._events:
            self._events[which].record()

    def milliseconds(self) -> float:
        """Between the two, once the device has passed them."""
        return self._events[0].elapsed_time(self._events[1]) if self._events else 0.0


def measure(runner: Runner, request: Request, clock: Clock) -> dict[str, float]:
    """Run one request, part by part."""
    times = [time.perf_counter()]
    lease = runner.pool.acquire(request)
    assert lease is not None, "nothing else is in use"
    times.append(time.perf_counter())
    clock.mark(0)
    flight = runner.launch([lease])
    clock.mark(1)
    times.append(time.perf_counter())
    logprobs = flight.read()
    times.append(time.perf_counter())
    runner.collect(replace(flight, read=lambda: logprobs))
    times.append(time.perf_counter())
    names = ("lease", "launch", "wait", "collect")
    taken = [(end - start) * 1e3 for start, end in pairwise(times)]
    return {**dict(zip(names, taken, strict=True)), "device": clock.milliseconds()}


def all_parts(
    engine: Engine, runner: Runner, lines: Sequence[dict[str, Any]], without: set[str]
) -> Iterator[dict[str, float]]:
    """The parts of every line, in order: a later one resumes from what earlier ones left."""
    clock = Clock(runner.storage.device)
    runner.pool.clear()
    for line in lines:
        if "checkpoints" in without:
            runner.pool.clear()
        began = time.perf_counter()
        asked = requests(engine, line, forks="forks" not in without)
        found = dict.fromkeys(PARTS, 0.0)
        found["plan"] = (time.perf_counter() - began) * 1e3
        for request in asked:
            for part, took in measure(runner, request, clock).items():
                found[part] += took
        found["all"] = (time.perf_counter() - began) * 1e3
        yield found


def executed(model: Decoder, backend: Backend, without: set[str]) -> Runner:
    """What runs rounds; without graphs every pass is launched kernel by kernel."""
    execute = backend.execute
    if "graphs" in without and isinstance(execute, GraphExecutor):
        execute = GraphExecutor(model, backend.storage, execute.tile_rows, [])
    return Runner(model, backend.storage, backend.pool, MAX_ROUND_TOKENS, execute)


def main() -> None:
    """Measure, with all parts and without some."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts", description=__doc__)
    parser.add_argument("model", help="a directory, or an id of the hub")
    parser.add_argument("file", help="requests, one a line")
    parser.add_argument("--device", help="cpu or cuda; default: cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--limit", type=int, default=20, help="lines to read; default: %(default)s")
    parser.add_argument("--pool-bytes", type=int, default=4 << 30, help="default: %(default)s")
    parser.add_argument(
        "--without", action="append", default=[], choices=["forks", "graphs", "checkpoints"],
        help="leave this out; may be given again",
    )  # fmt: skip
    args = parser.parse_args()
    without = set(args.without)
    with open(args.file) as file:
        lines = [json.loads(line) for line in islice(file, args.limit)]
    engine = Engine.from_pretrained(
        args.model, device=args.device, dtype=args.dtype, pool_bytes=args.pool_bytes
    )
    with closing(engine):
        backend = make_backend(engine.model, args.pool_bytes, MAX_ROUND_TOKENS)
        run = (engine, executed(engine.model, backend, without), lines, without)
        for _ in range(2):  # The first time captures graphs.
            found = list(all_parts(*run))
    table = Table("part", "ms", title=f"{args.file}, {len(found)} requests, without {args.without}")
    for part in PARTS:
        table.add_row(part, f"{median(one[part] for one in found):.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
