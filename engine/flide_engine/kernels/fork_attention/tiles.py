"""Tables that say which program of the Triton kernels attends to what, made on the host.

A tile is a run of query rows of one segment; on a trunk it never crosses a grid point. The trunk
keys of a tile are cut into splits of about one length, which follows from the position alone, so a
row is summed in the same pieces in whichever round it comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from flide_engine.core import GRID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_engine.round import Span

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Splitting:
    """Into how many splits trunk keys are cut.

    Splits leave partial results, which costs about as much as 100 keys do; they let few rows use
    all of a GPU. So a history is soon cut into `few`, for a step on it has few rows, and into more
    only where these would grow longer than `longest`.

    Attributes:
        shortest, longest: keys of a split.
        few, most: splits.
    """

    shortest: int
    few: int
    longest: int
    most: int

    def count(self, keys: Ints) -> Ints:
        """Splits of so many keys."""
        few = np.minimum(-(-keys // self.shortest), self.few)
        return np.clip(np.maximum(few, -(-keys // self.longest)), 1, self.most)


WIDE = Splitting(shortest=2048, few=4, longest=4096, most=16)
SINGLE = Splitting(shortest=1024, few=16, longest=8192, most=16)
"""Of tiles of one row: they read more than they multiply, and there are few of them."""

NONE = -1


@dataclass(frozen=True, slots=True)
class Tiles:
    """What the programs of one fork attention do; entries that begin with -1 are not used.

    Attributes:
        work: `[N, 7]` one a program, longest first: first query row and how many, slot, first and
            last + 1 trunk key, first own stream row or -1, partial to leave or -1.
        joins: `[J, 4]` one a tile of several splits: first query row and how many, first partial
            and how many.
        rows: query rows of a tile, at most.
        num_partials: how many partials there is room for.
    """

    work: torch.Tensor
    joins: torch.Tensor
    rows: int
    num_partials: int


def plan_tiles(spans: Sequence[Span], num_trunks: int, rows: int) -> Tiles:
    """Cut the queries of a round into tiles, and their trunk keys into splits; on the host.

    Args:
        spans: of the queries (`Queries.spans`).
        num_trunks: how many of them, leading, are trunks: S for `Round.every`, 0 for `Round.read`.
        rows: of a tile: a power of two of at most `GRID` (see `triton_kernel.tile_rows`).
    """
    work, joins = _splits(*_tiles(spans, num_trunks, rows), splitting(rows))
    return Tiles(torch.from_numpy(work), torch.from_numpy(joins), rows, int(joins[:, 3].sum()))


def splitting(rows: int) -> Splitting:
    """How tiles of so many rows are split."""
    return SINGLE if rows == 1 else WIDE


def tile_capacity(tokens: int, segments: int, pages: int, rows: int) -> tuple[int, int]:
    """Entries of `work` (and so partials) and `joins` that hold every round of at most that size.

    Args:
        tokens, segments: query rows, and the segments they lie in.
        pages: of the longest trunk.
        rows: of a tile.
    """
    tiles = min(tokens, tokens // rows + segments)
    splits = int(splitting(rows).count(np.array(pages * GRID)))
    return tiles * splits, tiles if splits > 1 else 0


def _tiles(spans: Sequence[Span], num_trunks: int, rows: int) -> tuple[Ints, Ints, Ints]:
    """`[N, 3]` first query, queries and slot of each tile; its trunk keys; its own rows or -1.

    Tiles begin at multiples of `rows` counted from the start of their segment, whichever of its
    rows are queries; a trunk's tail begins on the grid, so there they follow positions.
    """
    fields = [(s.slot, s.prefix, s.own_start, s.own_len, s.q_start, s.q_len) for s in spans]
    of_span = np.array(fields, dtype=np.int64).reshape(-1, 6)
    counts = (of_span[:, 3] - 1) // rows - (of_span[:, 3] - of_span[:, 5]) // rows + 1
    index = np.repeat(np.arange(len(of_span)), counts)
    slot, prefix, own_start, own_len, q_start, q_len = of_span[index].T
    first = own_len - q_len
    tile = first // rows + _ramps(counts)
    begin = np.maximum(tile * rows, first)
    end = np.minimum((tile + 1) * rows, own_len)
    is_trunk = index < num_trunks
    tiles = np.stack([q_start + begin - first, end - begin, slot], axis=1)
    return tiles, prefix + end * is_trunk, np.where(is_trunk, NONE, own_start)


def _splits(tiles: Ints, keys: Ints, own_start: Ints, splitting: Splitting) -> tuple[Ints, Ints]:
    """The tables; a segment's own rows go with the last split of its trunk keys."""
    # From the grid point after them: a tile's keys end where its rows do, wherever a trunk ends.
    pages = np.maximum(-(-keys // GRID), 1)
    length = -(-pages // splitting.count(pages * GRID)) * GRID
    counts = np.maximum(-(-keys // length), 1)
    index = np.repeat(np.arange(len(tiles)), counts)
    split = _ramps(counts)
    start = split * length[index]
    end = np.minimum(start + length[index], keys[index])
    own = np.where(split == counts[index] - 1, own_start[index], NONE)
    is_split = counts > 1
    partials = np.where(is_split, counts, 0)
    first = np.cumsum(partials) - partials
    partial = np.where(is_split[index], first[index] + split, NONE)
    work = np.column_stack([tiles[index], start, end, own, partial])
    joins = np.column_stack([tiles[:, :2], first, counts])[is_split]
    # Longest first, so that the last programs to start are short.
    return work[np.argsort(start - end, kind="stable")], joins


def _ramps(counts: Ints) -> Ints:
    """0, 1, ... `counts[i]` numbers each, one after the other."""
    ends = np.cumsum(counts)
    ramps: Ints = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    return ramps
