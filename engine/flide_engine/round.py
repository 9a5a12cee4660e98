"""One round: the flat stream of tokens, and everything that says who sees what, as data.

The stream is `[trunk tails of all slots | branches of all slots]`, without padding. A segment is a
run of its rows: the tail of one trunk (what no checkpoint holds of it), or one branch. T rows, S
slots
(one per trunk), B branches, C chunks of `GRID` rows, R rows that are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from flide_engine.kernels.fork_attention.tiles import Tiles

ZERO = -1
"""In `state_in` and `conv_source`: nothing came before, so the value is zero."""


@dataclass(frozen=True, slots=True)
class Span:
    """Query rows that see the same trunk keys and the same run of own rows.

    The queries are the last `q_len` of the own rows; each sees own rows up to itself.

    Attributes:
        slot: whose trunk is seen.
        prefix: how many leading keys of that trunk, through its pages.
        own_start, own_len: the stream rows of the segment.
        q_start, q_len: rows of the query tensor.
    """

    slot: int
    prefix: int
    own_start: int
    own_len: int
    q_start: int
    q_len: int


@dataclass(frozen=True, slots=True)
class Queries:
    """The rows a layer computes outputs for: all of the stream, or in the last layer the read ones.

    Attributes:
        rows: `[Q]` stream rows, or None for all of them in order.
        trunk_slot, trunk_len: `[Q]` whose trunk a row sees, and how many of its keys.
        branch_start, branch_len: `[Q]` the own rows it sees: from which one, and how many.
        spans: the same, as runs, for backends that walk segments on the host.
        tiles: the same, cut up for the programs of a CUDA kernel; None on a CPU.
    """

    rows: torch.Tensor | None
    trunk_slot: torch.Tensor
    trunk_len: torch.Tensor
    branch_start: torch.Tensor
    branch_len: torch.Tensor
    spans: tuple[Span, ...]
    tiles: Tiles | None

    def select(self, hidden: torch.Tensor) -> torch.Tensor:
        """The rows of `hidden` `[T, ...]` that are computed on: `[Q, ...]`."""
        return hidden if self.rows is None else hidden[self.rows]


@dataclass(frozen=True, slots=True)
class Segments:
    """Where every segment lies and which state it starts from; trunks first, then branches.

    States are named by one index: below `num_states` a slot of the pool, above it a scratch state
    that lives for one layer of one round (a trunk's state where branches hang), `ZERO` for none.

    Attributes:
        start, length: `[S + B]` stream rows.
        state_in: `[S + B]` the state the segment goes on from.
        chunks: `[C, 2]` (segment, chunk of it), trunks first.
        state_out: `[C]` where to store the state after this chunk, or -1.
        slots: how many leading entries of the tables above are trunks', used or not.
        num_trunks: S.
        num_scratch: how many scratch states the round uses.
        lengths, states: `length` and `state_in` on the host.
        outs: {(segment, chunk): state} of the chunks with a state_out, on the host.
    """

    start: torch.Tensor
    length: torch.Tensor
    state_in: torch.Tensor
    chunks: torch.Tensor
    state_out: torch.Tensor
    slots: int
    num_trunks: int
    num_scratch: int
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    states: tuple[int, ...]
    outs: dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class ConvSources:
    """What a short causal convolution of width W reads, and what it leaves.

    Attributes:
        source: `[W - 1, T]` for the j-th predecessor (j = 1 first): a stream row >= 0, `ZERO`, or
            `-2 - (state * (W - 1) + place)` for a place in a saved window.
        edge_rows: `[E]` the rows whose predecessors are not simply the rows before them.
        save_rows: `[N, W - 1]` the stream rows of each window to save, oldest first.
        save_states: `[N]` the pool states they belong to.
    """

    source: torch.Tensor
    edge_rows: torch.Tensor
    save_rows: torch.Tensor
    save_states: torch.Tensor


@dataclass(frozen=True, slots=True)
class Labels:
    """The tokens that may answer each read row, one row's after the other; L in all.

    Attributes:
        token_ids: `[L]`.
        row: `[L]` the read row each belongs to.
        start: `[R + 1]` where each row's begin, and L.
        counts: how many each row has, on the host.
    """

    token_ids: torch.Tensor
    row: torch.Tensor
    start: torch.Tensor
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """Everything a pass needs to know.

    Attributes:
        token_ids, positions: `[T]`; a branch's positions go on from where it hangs.
        page_table: `[S, pages]` where each trunk's keys and values lie, `GRID` tokens a page.
        slot_mapping: `[T]` the place (page * GRID + offset) a trunk row writes its keys and values
            to, or -1 for a branch row, which stays in the stream.
        pages: `page_table` on the host, one list a slot.
        every: all rows as queries.
        read: the last row of every branch as queries, `[R]`.
        labels: what may answer the read rows.
        segments, conv: for recurrent layers.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    page_table: torch.Tensor
    slot_mapping: torch.Tensor
    pages: tuple[tuple[int, ...], ...]
    num_trunk_rows: int
    every: Queries
    read: Queries
    labels: Labels
    segments: Segments
    conv: ConvSources
