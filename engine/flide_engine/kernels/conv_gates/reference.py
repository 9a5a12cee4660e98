"""The operands of the gated delta rule in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from flide_engine.kernels.causal_conv.reference import causal_conv_reference

if TYPE_CHECKING:
    from flide_engine.kernels.conv_gates.entry import Operands
    from flide_engine.round import ConvSources

L2_EPS = 1e-6
"""Added to the sum of squares of queries and keys (transformers, `l2norm` of Gated DeltaNet)."""


def conv_gates_reference(
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
    """See `conv_gates`."""
    value_heads = len(log_decay)
    values = value_heads * value_dim
    keys = (mixed.shape[1] - values) // 2
    mixed = causal_conv_reference(mixed, weight, windows, sources)
    query, key, value = mixed.split_with_sizes([keys, keys, values], dim=-1)
    wide = log_decay.dtype
    write, step = gates.to(wide).chunk(2, dim=-1)
    return (
        _unit(query.view(-1, keys // key_dim, key_dim), wide).mul_(key_dim**-0.5),
        _unit(key.view(-1, keys // key_dim, key_dim), wide),
        value.view(-1, value_heads, value_dim),
        -log_decay.exp() * F.softplus(step + dt_bias),
        torch.sigmoid(write),
    )


def _unit(x: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    x = x.to(wide)
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + L2_EPS)
