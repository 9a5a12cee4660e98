"""The heart of a Gated DeltaNet layer in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from flide_engine.kernels.fused_norm.reference import rms_norm_reference
from flide_engine.kernels.gated_delta_net.convolution import causal_conv
from flide_engine.kernels.gated_delta_net.recurrence import gated_delta_rule

if TYPE_CHECKING:
    from flide_engine.kernels.gated_delta_net.entry import Parameters
    from flide_engine.round import ConvSources, Segments

L2_EPS = 1e-6
"""Added to the sum of squares of queries and keys (transformers, `l2norm` of Gated DeltaNet)."""


def gated_delta_net_reference(
    z: torch.Tensor,
    mixed: torch.Tensor,
    gates: torch.Tensor,
    parameters: Parameters,
    windows: torch.Tensor,
    states: torch.Tensor,
    sources: ConvSources,
    segments: Segments,
) -> torch.Tensor:
    """See `gated_delta_net`."""
    heads, key_dim, value_dim = parameters.value_heads, parameters.key_dim, parameters.value_dim
    mixed = causal_conv(mixed, parameters.conv, windows, sources)
    values = heads * value_dim
    keys = (mixed.shape[1] - values) // 2
    query, key, value = mixed.split_with_sizes([keys, keys, values], dim=-1)
    wide = states.dtype
    write, step = gates.to(wide).chunk(2, dim=-1)
    out = gated_delta_rule(
        _unit(query.view(-1, keys // key_dim, key_dim), wide).mul_(key_dim**-0.5),
        _unit(key.view(-1, keys // key_dim, key_dim), wide),
        value.view(-1, heads, value_dim),
        -parameters.log_decay.exp() * F.softplus(step + parameters.dt_bias),
        torch.sigmoid(write),
        states,
        segments,
    )
    normed = rms_norm_reference(out.to(wide), parameters.norm, parameters.eps).flatten(-2)
    return normed.mul_(F.silu(z.to(wide))).to(z.dtype)


def _unit(x: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    x = x.to(wide)
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + L2_EPS)
