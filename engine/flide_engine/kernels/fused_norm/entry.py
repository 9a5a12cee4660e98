"""The door to the norms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.kernels.fused_norm.reference import (
    add_rms_norm_reference,
    rms_norm_reference,
)

if TYPE_CHECKING:
    import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension, in the dtype of x.

    Args:
        x: `[T, D]`.
        weight: `[D]` in at least float32; sums are in its dtype.
        eps: added to the mean square.
    """
    if not x.is_cuda:
        return rms_norm_reference(x, weight, eps)
    from flide_engine.kernels.fused_norm.triton_kernel import rms_norm_triton

    return rms_norm_triton(x, weight, eps)


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rows: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add to the residual stream, and norm the sum.

    Args:
        x: `[Q, D]`.
        residual: `[T, D]`.
        weight, eps: see `rms_norm`.
        rows: `[Q]` the rows of `residual` that are added to, or None for all in order.
        dtype: of the normed sum; that of x by default.

    Returns:
        The sum `[Q, D]` in the dtype of x, and its norm.
    """
    if not x.is_cuda:
        return add_rms_norm_reference(x, residual, weight, eps, rows, dtype)
    from flide_engine.kernels.fused_norm.triton_kernel import add_rms_norm_triton

    return add_rms_norm_triton(x, residual, weight, eps, rows, dtype)
