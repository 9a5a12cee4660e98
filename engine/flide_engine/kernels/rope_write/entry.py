"""The door to what comes between an attention layer's projections and its attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.kernels.rope_write.reference import rope_write_reference

if TYPE_CHECKING:
    import torch


def rope_write(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slot_mapping: torch.Tensor,
    rows: torch.Tensor | None = None,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Norm and turn queries and keys; write the trunks' keys and values into their pages.

    Args:
        query: `[Q, H, D]`.
        key, value: `[T, HKV, D]` of the whole stream.
        rotation: cosines and sines `[T, 1, rotary_dim / 2]`; the leading rotary_dim of a head
            turns, the first half of it with the second.
        key_pages, value_pages: `[places, HKV, D]`.
        slot_mapping: `[T]` the place a row is written to, or -1 for a branch row; trunks first.
        rows: `[Q]` the stream rows of the queries, or None for all in order.
        q_norm, k_norm: `[D]` in at least float32, or None for no norm.
        eps: of those norms.

    Returns:
        The query and the key of all rows; those given may be overwritten.
    """
    places = (key_pages, value_pages, slot_mapping)
    operands = (query, key, value, rotation, *places, rows, q_norm, k_norm, eps)
    if not query.is_cuda:
        return rope_write_reference(*operands)
    from flide_engine.kernels.rope_write.triton_kernel import rope_write_triton

    return rope_write_triton(*operands)
