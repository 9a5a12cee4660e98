"""The door to fork attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.kernels.fork_attention.reference import fork_attention_reference

if TYPE_CHECKING:
    import torch

    from flide_engine.round import Queries, Round


def fork_attention(
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
    """Each query row attends to the leading keys of its trunk and to its own rows up to itself.

    Equation 3 of the paper: the same request, its trunk or its own branch, and never later.

    Args:
        query: `[Q, heads, D]`, the rows of `queries`.
        key, value: `[T, kv_heads, D]` of the whole stream.
        key_pages, value_pages: `[places, kv_heads, D]`; the trunk rows of this round are written.
        rnd: the round.
        queries: which rows `query` holds, and what each sees.
        scale: factor of the scores.
        gate: `[Q, heads, D]`; the output is multiplied by its sigmoid.

    Returns:
        `[Q, heads, D]`.
    """
    operands = (query, key, value, key_pages, value_pages, rnd, queries, scale)
    if queries.tiles is None:
        return fork_attention_reference(*operands, gate)
    from flide_engine.kernels.fork_attention.triton_kernel import fork_attention_triton

    return fork_attention_triton(*operands, queries.tiles, gate)
