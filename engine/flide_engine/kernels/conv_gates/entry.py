"""The door to the operands of the gated delta rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.kernels.conv_gates.reference import conv_gates_reference

if TYPE_CHECKING:
    import torch

    from flide_engine.round import ConvSources

Operands = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor", "torch.Tensor", "torch.Tensor"]


def conv_gates(
    mixed: torch.Tensor,
    gates: torch.Tensor,
    weight: torch.Tensor,
    log_decay: torch.Tensor,
    dt_bias: torch.Tensor,
    windows: torch.Tensor,
    sources: ConvSources,
    key_dim: int,
    value_dim: int,
) -> Operands:
    """Convolution and SiLU, then queries, keys, values, decays and write strengths of every head.

    Args:
        mixed: `[T, channels]`, queries, keys and values before the convolution.
        gates: `[T, 2 * value_heads]`, write strengths (b), then decays (a).
        weight, windows, sources: see `causal_conv_reference`.
        log_decay, dt_bias: `[value_heads]` in at least float32.
        key_dim, value_dim: of a head.

    Returns:
        query, key: `[T, key_heads, key_dim]` of length 1 (over the last dimension), query times
            key_dim^-1/2.
        value: `[T, value_heads, value_dim]`.
        decay, beta: `[T, value_heads]` in the dtype of `log_decay`: `-exp(log_decay) softplus(a +
            dt_bias)` and `sigmoid(b)`.
    """
    operands = (mixed, gates, weight, log_decay, dt_bias, windows, sources, key_dim, value_dim)
    if not mixed.is_cuda:
        return conv_gates_reference(*operands)
    from flide_engine.kernels.conv_gates.triton_kernel import conv_gates_triton

    return conv_gates_triton(*operands)
