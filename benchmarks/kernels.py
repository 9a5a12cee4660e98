"""Each kernel of a pass beside its floor on this GPU: `python -m benchmarks.kernels 0.8B`.

The floor is the larger of two times: every operand once through device memory, every operation at
the rate of dense bfloat16 products. Small operands stay in the second-level cache between launches,
as they do in a pass.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu import STREAMS, capture, profile, replay_ms, trunk_of
from benchmarks.shapes import SIZES
from flide_engine.arrays import DeviceArrays
from flide_engine.core import GRID
from flide_engine.kernels.fork_attention import fork_attention
from flide_engine.kernels.fork_attention.triton_kernel import tile_rows
from flide_engine.kernels.fused_norm import add_rms_norm
from flide_engine.kernels.gated_delta_net import Parameters, gated_delta_net
from flide_engine.kernels.rope_write import rope_write
from flide_engine.kernels.swiglu import swiglu
from flide_engine.pack import pack
from flide_engine.storage import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.gpu import Stream
    from flide_engine.round import Queries, Round

BYTES_PER_US = 4.3e6
OPERATIONS_PER_US = 790e6
REPEATS = 10
NUM_STATES = 4
DTYPE = torch.bfloat16
SIZE = DTYPE.itemsize


@dataclass(frozen=True)
class Op:
    """One kernel at one shape.

    Attributes:
        name: for people.
        run: launches it once.
        moved, operations: bytes and floating point operations it cannot do without.
        count: launches of it in a pass.
    """

    name: str
    run: Callable[[], object]
    moved: float
    operations: float
    count: int

    @property
    def floor_us(self) -> float:
        """No version is faster."""
        return max(self.moved / BYTES_PER_US, self.operations / OPERATIONS_PER_US)


def random(*shape: int, dtype: torch.dtype = DTYPE) -> torch.Tensor:
    """Random numbers on the device: zeros would be multiplied faster."""
    return torch.randn(shape, device="cuda", dtype=dtype)


def attention_ops(config: dict[str, Any], rnd: Round, layers: int) -> list[Op]:
    """What an attention layer runs besides products; a last layer only attends from read rows."""
    heads, kv_heads, dim = (
        config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    count, half = len(rnd.token_ids), dim // 8
    qkv = random(count, (2 * heads + 2 * kv_heads) * dim)
    query, gate = qkv[:, : 2 * heads * dim].view(count, heads, 2 * dim).chunk(2, dim=-1)
    key, value = qkv[:, 2 * heads * dim :].view(count, 2 * kv_heads, dim).chunk(2, dim=1)
    angle = random(count, 1, half, dtype=torch.float32)
    rotation = (angle.cos().to(DTYPE), angle.sin().to(DTYPE))
    norm = torch.ones(dim, device="cuda")
    places = (int(rnd.page_table.max()) + 1) * GRID
    pages = random(places, kv_heads, dim), random(places, kv_heads, dim)
    trunk_rows = rnd.num_trunk_rows
    turned = random(count, heads, dim)

    def attend(name: str, queries: Queries, layers: int) -> Op:
        rows = queries.rows if queries.rows is not None else slice(None)
        q, g = turned[rows], gate[rows]
        seen = int((queries.trunk_len + queries.branch_len).sum())
        keys = int(queries.trunk_len.max()) + count - trunk_rows
        moved = (3 * q.numel() + 2 * keys * kv_heads * dim) * SIZE
        return Op(
            name,
            lambda: fork_attention(q, key, value, *pages, rnd, queries, dim**-0.5, g),
            moved, 4.0 * seen * heads * dim, layers,
        )  # fmt: skip

    return [
        Op(
            "rope_write",
            lambda: rope_write(
                query, key, value, rotation, *pages, rnd.slot_mapping, None, norm, norm
            ),
            (count * (2 * heads + 2 * kv_heads) + trunk_rows * 3 * kv_heads) * dim * SIZE, 0.0,
            layers,
        ),
        attend("fork_attention", rnd.every, layers - 1),
        attend("fork_attention, reads", rnd.read, 1),
    ]  # fmt: skip


def recurrent_ops(config: dict[str, Any], rnd: Round, layers: int) -> list[Op]:
    """What a recurrent layer runs besides products."""
    key_heads, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_dim, value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    width, count = config["linear_conv_kernel_dim"], len(rnd.token_ids)
    values, channels = heads * value_dim, 2 * key_heads * key_dim + heads * value_dim
    sizes = [values, channels, 2 * heads]
    z, mixed, gates = random(count, sum(sizes)).split_with_sizes(sizes, dim=1)
    parameters = Parameters(
        value_heads=heads,
        key_dim=key_dim,
        value_dim=value_dim,
        conv=random(width, channels),
        log_decay=torch.empty(heads, device="cuda").uniform_(-0.7, 2.1),
        dt_bias=torch.empty(heads, device="cuda").uniform_(-4, -1),
        norm=torch.ones(value_dim, device="cuda"),
        eps=1e-6,
    )
    windows = random(NUM_STATES, width - 1, channels)
    states = random(NUM_STATES, heads, key_dim, value_dim, dtype=torch.float32)
    marks = len(set(rnd.segments.states)) + len(rnd.segments.outs)
    per_row = 6 * key_dim * value_dim + 2 * GRID * (2 * key_dim + 2 * value_dim)
    return [
        Op(
            "gated_delta_net",
            lambda: gated_delta_net(
                z, mixed, gates, parameters, windows, states, rnd.conv, rnd.segments
            ),
            count * (channels + 2 * values + 2 * heads) * SIZE
            + marks * 4 * heads * key_dim * value_dim,
            1.0 * count * heads * per_row, layers,
        ),
    ]  # fmt: skip


def other_ops(config: dict[str, Any], rnd: Round, layers: int) -> list[Op]:
    """What every layer runs besides products and its mixer."""
    count, hidden, inner = len(rnd.token_ids), config["hidden_size"], config["intermediate_size"]
    x, residual, gate_up = random(count, hidden), random(count, hidden), random(count, 2 * inner)
    weight = torch.ones(hidden, device="cuda")
    return [
        Op(
            "add_rms_norm", lambda: add_rms_norm(x, residual, weight, 1e-6),
            4 * x.numel() * SIZE, 0.0, 2 * layers,
        ),
        Op("swiglu", lambda: swiglu(gate_up), 1.5 * gate_up.numel() * SIZE, 0.0, layers),
    ]  # fmt: skip


def ops_of(config: dict[str, Any], stream: Stream) -> list[Op]:
    """All kernels of a pass over one stream."""
    heads, kv_heads, dim = (
        config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    layout = Layout(
        attention_layers=1, heads=heads, kv_heads=kv_heads, head_dim=dim,
        conv_width=config["linear_conv_kernel_dim"],
    )  # fmt: skip
    arrays = DeviceArrays(torch.device("cuda"), tile_rows(heads // kv_heads, dim, DTYPE))
    rnd = pack([trunk_of(stream, np.random.default_rng(0))], layout, NUM_STATES, arrays)
    layers = config["num_hidden_layers"]
    return [
        *attention_ops(config, rnd, layers // 4),
        *recurrent_ops(config, rnd, layers - layers // 4),
        *other_ops(config, rnd, layers),
    ]


def time_us(op: Op) -> tuple[float, dict[str, float]]:
    """Microseconds of one call, the fastest of several replays; and of each kernel it launches."""

    def run() -> None:
        for _ in range(REPEATS):
            op.run()

    graph = capture(run)
    parts = {name: ms * 1e3 / REPEATS for name, ms in profile(graph).items()}
    return replay_ms(graph) * 1e3 / REPEATS, parts


def main() -> None:
    """Measure one size on the streams asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--streams", default=",".join(STREAMS), help="names, with commas")
    parser.add_argument("--parts", action="store_true", help="show the kernels an operation runs")
    args = parser.parse_args()
    table = Table("stream", "kernel", "us", "floor us", "ratio", "a pass, us")
    for name in args.streams.split(","):
        total = floor = 0.0
        with torch.inference_mode():
            for op in ops_of(SIZES[args.size], STREAMS[name]):
                took, parts = time_us(op)
                total, floor = total + took * op.count, floor + op.floor_us * op.count
                table.add_row(
                    name, op.name, f"{took:.1f}", f"{op.floor_us:.1f}", f"{took / op.floor_us:.1f}",
                    f"{took * op.count:.0f}",
                )  # fmt: skip
                for part, us in parts.items() if args.parts and len(parts) > 1 else ():
                    table.add_row("", f"  {part}", f"{us:.1f}", "", "", "")
        row = ("all, one pass", "", f"{floor:.0f}", f"{total / floor:.1f}", f"{total:.0f}")
        table.add_row(name, *row, end_section=True)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
