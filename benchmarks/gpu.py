"""GPU time of a pass beside its bare matrix products: `python -m benchmarks.gpu 0.8B`."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from benchmarks.shapes import SIZES
from flide_engine.core import GRID, Branch
from flide_engine.executors import GraphExecutor, capacity_for, ladder
from flide_engine.kernels.fork_attention.triton_kernel import tile_rows
from flide_engine.layers.attention import Attention
from flide_engine.models import Decoder, load_model
from flide_engine.pack import Trunk
from flide_engine.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_ROUND_TOKENS = 8192


@dataclass(frozen=True)
class Stream:
    """A round of one request: history that is held, new trunk tokens, and its questions."""

    history: int
    new: int
    questions: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Of the stream."""
        return self.new + sum(self.questions)


STREAMS = {
    "race1": Stream(0, 330, (76,)),
    "race4": Stream(0, 330, (106, 106, 106, 107)),
    "multirc48": Stream(0, 390, (57,) * 47),
    "quality18": Stream(0, 5990, (110,) * 18),
    "step": Stream(12992, 248, (60,) * 4),
    "step_short": Stream(1984, 248, (60,) * 4),
}


class RandomWeights:
    """Stands in for a checkpoint's files: speed depends on shapes, not on what weights say."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype

    def take(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Small random numbers; decays in the range that trained ones have."""
        out = torch.empty(shape, dtype=dtype or self.dtype, device=self.device)
        if name.endswith("A_log"):
            return out.uniform_(-0.7, 2.1)
        if name.endswith("dt_bias"):
            return out.uniform_(-4, -1)
        return out.normal_(0, 0.02)

    def take_stacked(self, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """As `take`."""
        return self.take(names[0], (sum(shape[0] for shape in shapes), *shapes[0][1:]))


def trunk_of(stream: Stream, rng: np.random.Generator) -> Trunk:
    """The stream as one leased trunk."""
    length = stream.history + stream.new
    labels = np.arange(4)
    branches = [Branch(rng.integers(0, 9000, n), labels) for n in stream.questions]
    pages = list(range(-(-length // GRID)))
    mark = (length - 8) // GRID * GRID
    saves = {mark: 1} if mark > stream.history else {}
    state = 0 if stream.history else -1
    return Trunk(rng.integers(0, 9000, length), branches, pages, stream.history, state, saves)


def products(model: Decoder, rows: int) -> Callable[[], None]:
    """The matrix products of a pass over all rows, and nothing else."""
    weights = []
    for layer in model.layers:
        inputs = layer.mixer.qkv if isinstance(layer.mixer, Attention) else layer.mixer.inputs
        weights += [inputs, layer.mixer.out, layer.mlp.gate_up, layer.mlp.down]
    widths = {weight.shape[1] for weight in weights}
    x = {n: torch.randn(rows, n, device="cuda", dtype=model.dtype) for n in widths}

    def run() -> None:
        for weight in weights:
            F.linear(x[weight.shape[1]], weight)

    return run


def replay_ms(graph: torch.cuda.CUDAGraph, repeats: int = 30) -> float:
    """The fastest of several replays, by events."""
    times: list[float] = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return min(times)


def capture(run: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of `run`, warmed up."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream), torch.inference_mode():
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.inference_mode():
        run()
    return graph


def profile(graph: torch.cuda.CUDAGraph) -> dict[str, float]:
    """Milliseconds a replay by kernel, largest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        graph.replay()
        torch.cuda.synchronize()
    found = {event.key[:60]: event.self_device_time_total / 1e3 for event in prof.key_averages()}
    return dict(sorted(found.items(), key=lambda item: -item[1])[:14])


def measure(model: Decoder, storage: Storage, stream: Stream) -> dict[str, Any]:
    """One stream: the pass, its floor, and what fills the pass."""
    trunk = trunk_of(stream, np.random.default_rng(0))
    layout = model.layout
    rows = tile_rows(layout.heads // layout.kv_heads, layout.head_dim, model.dtype)
    need = capacity_for([trunk])
    steps = ladder(MAX_ROUND_TOKENS, model.max_positions // GRID)
    capacity = next(step for step in steps if step.holds(need))
    executor = GraphExecutor(model, storage, rows, [capacity])
    executor.start([trunk])()
    graph = executor._graphs[capacity].graph
    floor = capture(products(model, stream.rows))
    took, bare = replay_ms(graph), replay_ms(floor)
    return {
        "rows": stream.rows, "pass_ms": took, "floor_ms": bare, "ratio": took / bare,
        "kernels_ms": profile(graph),
    }  # fmt: skip


def main() -> None:
    """Measure the streams of one size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--json", help="write the figures here too")
    args = parser.parse_args()
    device = torch.device("cuda")
    with torch.inference_mode():
        weights: Any = RandomWeights(device, torch.bfloat16)
        model = load_model(SIZES[args.size], weights)
    storage = Storage(model.layout, num_pages=256, num_states=8, dtype=model.dtype, device=device)
    for tensor in (*storage.keys, *storage.values, *storage.recurrent, *storage.windows):
        tensor.normal_(0, 0.1)
    figures = {name: measure(model, storage, stream) for name, stream in STREAMS.items()}
    table = Table("stream", "rows", "pass ms", "floor ms", "ratio")
    for name, found in figures.items():
        table.add_row(
            name, str(found["rows"]), f"{found['pass_ms']:.2f}", f"{found['floor_ms']:.2f}",
            f"{found['ratio']:.2f}",
        )  # fmt: skip
    Console().print(table)
    for name, found in figures.items():
        print(name, json.dumps({k: round(v, 3) for k, v in found["kernels_ms"].items()}))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
