"""Leased trunks and their branches, packed into the flat stream of one round."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flide_engine.arrays import Arrays, HostArrays
from flide_engine.core import GRID, Branch, Tokens
from flide_engine.kernels.fork_attention.tiles import Tiles, plan_tiles
from flide_engine.round import ZERO, ConvSources, Labels, Queries, Round, Segments, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from flide_engine.storage import Layout

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Trunk:
    """One slot of a round: a trunk, what of it is already held, and the branches that hang off it.

    Attributes:
        token_ids: `[P]` the whole trunk.
        branches: in the order their answers are wanted.
        pages: the trunk's pages, P / GRID rounded up; those below `start` are shared, the rest are
            its own.
        start: the grid point it resumes from; 0 when fresh. start < P.
        state_in: the pool state at `start`, or `ZERO`.
        saves: {grid point: pool state} to leave on the way, each above `start`.
    """

    token_ids: Tokens
    branches: Sequence[Branch]
    pages: Sequence[int]
    start: int = 0
    state_in: int = ZERO
    saves: dict[int, int] = field(default_factory=dict)

    @property
    def tail(self) -> int:
        """Rows of the stream the trunk needs."""
        return len(self.token_ids) - self.start

    def fork_of(self, branch: Branch) -> int:
        """The trunk position at which a branch begins."""
        return len(self.token_ids) if branch.fork is None else branch.fork


@dataclass(slots=True)
class _Table:
    """One row a segment, trunks first; plain lists while it grows."""

    slot: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    prefix: list[int] = field(default_factory=list)
    state_in: list[int] = field(default_factory=list)

    def add(self, slot: int, length: int, position: int, prefix: int, state_in: int) -> None:
        self.slot.append(slot)
        self.length.append(length)
        self.position.append(position)
        self.prefix.append(prefix)
        self.state_in.append(state_in)


def pack(
    trunks: Sequence[Trunk], layout: Layout, num_states: int, arrays: Arrays | None = None
) -> Round:
    """Lay trunks and branches out as one stream.

    Args:
        trunks: the slots of the round, in order; branches are read in the same order.
        layout: the model's needs; only the convolution's width is used.
        num_states: how many states the pool has: scratch states are counted from there.
        arrays: where the arrays go; by default onto the host.
    """
    put = arrays or HostArrays()
    table, outs, num_scratch = _segments(trunks, num_states)
    length = np.array(table.length, dtype=np.int64)
    row = np.cumsum(length) - length
    position = ramp(np.array(table.position), length)
    slot = np.repeat(table.slot, length)
    is_trunk = np.arange(len(position)) < length[: len(trunks)].sum()
    local = ramp(np.zeros_like(row), length)
    every = {
        "trunk_slot": slot,
        "trunk_len": np.where(is_trunk, position + 1, np.repeat(table.prefix, length)),
        "branch_start": np.repeat(row, length),
        "branch_len": np.where(is_trunk, 0, local + 1),
    }
    reads = (row + length - 1)[len(trunks) :]
    page_table = _page_table(trunks)
    page = page_table[slot, np.minimum(position // GRID, page_table.shape[1] - 1)]
    tails = [trunk.token_ids[trunk.start :] for trunk in trunks]
    branches = [branch for trunk in trunks for branch in trunk.branches]
    token_ids = np.concatenate([*tails, *(branch.token_ids for branch in branches)])
    return Round(
        token_ids=put.put("token_ids", token_ids, fill=0),
        positions=put.put("positions", position, fill=0),
        page_table=put.put("page_table", page_table),
        slot_mapping=put.put("slot_mapping", np.where(is_trunk, page * GRID + position % GRID, -1)),
        pages=tuple(tuple(trunk.pages) for trunk in trunks),
        num_trunk_rows=int(is_trunk.sum()),
        every=Queries(
            rows=None,
            **{name: put.put(f"every.{name}", array, fill=0) for name, array in every.items()},
            spans=(spans := _spans(table, row, range(len(row)), whole=True)),
            tiles=_tiles("every", spans, len(trunks), put.tile_rows, put),
        ),
        read=Queries(
            rows=put.put("read.rows", reads, fill=0),
            **{
                name: put.put(f"read.{name}", array[reads], fill=0) for name, array in every.items()
            },
            spans=(spans := _spans(table, row, range(len(trunks), len(row)), whole=False)),
            tiles=_tiles("read", spans, 0, put.tile_rows and 1, put),
        ),
        labels=_pack_labels(branches, put),
        segments=_pack_segments(table, row, outs, len(trunks), num_scratch, put),
        conv=_pack_conv(trunks, table, row, local, layout.conv_width, put),
    )


def _page_table(trunks: Sequence[Trunk]) -> Ints:
    widest = max(len(trunk.pages) for trunk in trunks)
    page_table = np.full((len(trunks), widest), -1, dtype=np.int64)
    for index, trunk in enumerate(trunks):
        page_table[index, : len(trunk.pages)] = trunk.pages
    return page_table


def ramp(first: npt.NDArray[Any], length: Ints) -> Ints:
    """Concatenate `first[i], first[i] + 1, ...` of `length[i]` numbers each."""
    ends = np.cumsum(length)
    ramps: Ints = np.arange(ends[-1]) - np.repeat(ends - length - first, length)
    return ramps


def _segments(
    trunks: Sequence[Trunk], num_states: int
) -> tuple[_Table, dict[tuple[int, int], int], int]:
    """The table of segments, where states are stored, and how many scratch states that takes.

    A branch reads its trunk's state where it hangs: the resumed one, a saved one, or else a scratch
    state that this round writes there.
    """
    table = _Table()
    outs: dict[tuple[int, int], int] = {}
    scratch = 0
    at: list[dict[int, int]] = []
    for slot, trunk in enumerate(trunks):
        table.add(slot, trunk.tail, trunk.start, trunk.start, trunk.state_in)
        states = {trunk.start: trunk.state_in, **trunk.saves}
        for fork in sorted({trunk.fork_of(branch) for branch in trunk.branches} - states.keys()):
            states[fork] = num_states + scratch
            scratch += 1
        for place, state in states.items():
            if place > trunk.start:
                outs[slot, (place - trunk.start - 1) // GRID] = state
        at.append(states)
    for slot, trunk in enumerate(trunks):
        for branch in trunk.branches:
            fork = trunk.fork_of(branch)
            table.add(slot, len(branch.token_ids), fork, fork, at[slot][fork])
    return table, outs, scratch


def _spans(table: _Table, row: Ints, which: range, *, whole: bool) -> tuple[Span, ...]:
    """One span a segment: all of its rows as queries, or its last one."""
    spans = []
    query = 0
    for index in which:
        length = table.length[index]
        count = length if whole else 1
        spans.append(
            Span(table.slot[index], table.prefix[index], int(row[index]), length, query, count)
        )
        query += count
    return tuple(spans)


def _tiles(
    name: str, spans: Sequence[Span], num_trunks: int, rows: int | None, put: Arrays
) -> Tiles | None:
    """The tiles of the queries, where the backend wants any."""
    if rows is None:
        return None
    tiles = plan_tiles(spans, num_trunks, rows)
    return replace(
        tiles,
        work=put.put(f"{name}.work", tiles.work.numpy()),
        joins=put.put(f"{name}.joins", tiles.joins.numpy()),
        num_partials=put.partials(name, tiles.num_partials),
    )


def _pack_labels(branches: Sequence[Branch], put: Arrays) -> Labels:
    counts = np.array([len(branch.label_ids) for branch in branches], dtype=np.int64)
    ids = [np.zeros(0, dtype=np.int64), *(branch.label_ids for branch in branches)]
    start = np.concatenate([[0], np.cumsum(counts)])
    return Labels(
        token_ids=put.put("labels.token_ids", np.concatenate(ids), fill=0),
        row=put.put("labels.row", np.repeat(np.arange(len(counts)), counts), fill=0),
        start=put.put("labels.start", start, fill=int(start[-1])),
        counts=tuple(counts.tolist()),
    )


def _pack_segments(
    table: _Table,
    row: Ints,
    outs: dict[tuple[int, int], int],
    num_trunks: int,
    num_scratch: int,
    put: Arrays,
) -> Segments:
    """Trunks take the first `slots` entries of every table, used or not; branches follow."""
    slots = put.slots(num_trunks)
    index = np.arange(len(row))
    index[num_trunks:] += slots - num_trunks
    counts = -(-np.array(table.length) // GRID)
    chunks = np.stack([np.repeat(index, counts), ramp(np.zeros_like(counts), counts)], axis=1)
    first = np.cumsum(counts) - counts
    state_out = np.full(len(chunks), -1, dtype=np.int64)
    for (segment, chunk), state in outs.items():
        state_out[first[segment] + chunk] = state

    def per_segment(name: str, values: npt.ArrayLike, fill: int) -> torch.Tensor:
        spread = np.full(index[-1] + 1, fill, dtype=np.int64)
        spread[index] = values
        return put.put(f"segments.{name}", spread, fill)

    return Segments(
        start=per_segment("start", row, 0),
        length=per_segment("length", table.length, 0),
        state_in=per_segment("state_in", table.state_in, ZERO),
        chunks=put.put("segments.chunks", chunks),
        state_out=put.put("segments.state_out", state_out),
        slots=slots,
        num_trunks=num_trunks,
        num_scratch=num_scratch,
        starts=tuple(row.tolist()),
        lengths=tuple(table.length),
        states=tuple(table.state_in),
        outs=outs,
    )


def _pack_conv(
    trunks: Sequence[Trunk],
    table: _Table,
    row: Ints,
    local: Ints,
    width: int,
    put: Arrays,
) -> ConvSources:
    """Predecessors of every row, and the windows to save: the last W - 1 inputs before a mark."""
    back = width - 1
    source = np.arange(len(local)) - np.arange(1, width)[:, None]
    edges = np.flatnonzero(local < back)
    segment = np.searchsorted(row, edges, side="right") - 1
    tail_row = row[: len(trunks)]
    for edge, index in zip(edges.tolist(), segment.tolist(), strict=True):
        slot = table.slot[index]
        trunk = trunks[slot]
        for j in range(int(local[edge]) + 1, width):
            place = table.position[index] + int(local[edge]) - j
            if place >= trunk.start:
                source[j - 1, edge] = tail_row[slot] + place - trunk.start
            elif place < 0:
                source[j - 1, edge] = ZERO
            else:
                window = trunk.state_in * back + place - (trunk.start - back)
                source[j - 1, edge] = -2 - window
    ends = [
        (int(tail_row[slot]) + place - trunk.start, state)
        for slot, trunk in enumerate(trunks)
        for place, state in trunk.saves.items()
    ]
    save_rows = np.array([end for end, _ in ends], dtype=np.int64)[:, None] + np.arange(-back, 0)
    states = np.array([state for _, state in ends], dtype=np.int64)
    return ConvSources(
        source=put.put("conv.source", source),
        edge_rows=put.put("conv.edge_rows", edges),
        save_rows=put.put("conv.save_rows", save_rows, fill=0),
        save_states=put.put("conv.save_states", states),
    )
