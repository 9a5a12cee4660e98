"""Root-mean-square norms, summed in at least float32."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension, in the dtype of x.

    Args:
        x: `[..., D]`.
        weight: `[D]` in at least float32.
        eps: added to the mean square.
    """
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)


def gated_rms_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """`rms_norm(x) * silu(gate)`, both `[..., D]`, in the dtype of gate."""
    normed = rms_norm(x.to(weight.dtype), weight, eps)
    return normed.mul_(F.silu(gate.to(weight.dtype))).to(gate.dtype)
