"""Fork attention in PyTorch: a dense part a trunk and a causal part a segment, joined."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import torch

from flide_engine.core import GRID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_engine.round import Queries, Round


def fork_attention_reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rnd: Round,
    queries: Queries,
    scale: float,
    gate: torch.Tensor | None = None,
) -> torch.Tensor:
    """See `fork_attention`.

    The keys below a segment are visible to all of its rows, so they need no mask: one product for
    all branches of a trunk. What a segment sees of itself is causal. Softmax over both is the
    average
    of the two softmaxes, weighted by their sums of exponentials.
    """
    out = torch.empty_like(query)
    own_lse = query.new_empty(
        query.shape[:2], dtype=torch.promote_types(query.dtype, torch.float32)
    )
    for span in queries.spans:
        rows = slice(span.q_start, span.q_start + span.q_len)
        own = slice(span.own_start, span.own_start + span.own_len)
        causal = span.q_len == span.own_len
        out[rows], own_lse[rows] = _attend(query[rows], key[own], value[own], scale, causal)
    for (slot, prefix), group in groupby(queries.spans, key=lambda span: (span.slot, span.prefix)):
        if prefix == 0:
            continue
        spans = list(group)
        rows = slice(spans[0].q_start, spans[-1].q_start + spans[-1].q_len)
        trunk_key = _gather(key_pages, rnd.pages[slot], prefix)
        trunk_value = _gather(value_pages, rnd.pages[slot], prefix)
        seen, lse = _attend(query[rows], trunk_key, trunk_value, scale, causal=False)
        weight = torch.sigmoid(lse - own_lse[rows]).unsqueeze(-1).to(out.dtype)
        out[rows] = torch.lerp(out[rows], seen, weight)
    return out if gate is None else out.mul_(torch.sigmoid(gate))


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[q, H, D]`, `[k, Hkv, D]` to outputs `[q, H, D]` and log sums of exponentials `[q, H]`.

    PyTorch's fused CPU attention is called by its own name because the public function keeps the
    sums.
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = flash(
        query.transpose(0, 1).unsqueeze(0),
        key.transpose(0, 1).unsqueeze(0),
        value.transpose(0, 1).unsqueeze(0),
        is_causal=causal,
        scale=scale,
    )
    return out.squeeze(0).transpose(0, 1), lse.squeeze(0).transpose(0, 1)


def _gather(pages: torch.Tensor, table: Sequence[int], length: int) -> torch.Tensor:
    """The first `length` keys or values of a trunk: a view where its pages lie in a row."""
    count = -(-length // GRID)
    first = table[0]
    if tuple(table[:count]) == tuple(range(first, first + count)):
        return pages[first * GRID : first * GRID + length]
    index = torch.tensor(table[:count], device=pages.device)
    return pages.view(-1, GRID, *pages.shape[1:])[index].flatten(0, 1)[:length]
