"""A Gated DeltaNet layer over the flat stream (Yang et al., 2025; paper, section 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from flide_engine.kernels.causal_conv import causal_conv
from flide_engine.kernels.gated_delta_rule import gated_delta_rule
from flide_engine.layers.norm import gated_rms_norm, l2_norm
from flide_engine.layers.projection import project

if TYPE_CHECKING:
    from flide_engine.layers.attention import Rotation
    from flide_engine.round import Queries, Round
    from flide_engine.storage import Storage


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """A short convolution, the gated delta rule, and a gated norm.

    Attributes:
        index: which recurrent layer of the model this is.
        key_heads, value_heads, key_dim, value_dim: shapes; conv channels are
            2 * key_heads * key_dim + value_heads * value_dim, queries first, then keys, then
            values.
        inputs: `[value_heads * value_dim + channels + 2 * value_heads, hidden]`: the gate of the
            norm (z), the conv channels, then write strengths (b) and decays (a).
        conv: `[channels, W]`.
        log_decay, dt_bias: `[value_heads]` in at least float32 (A_log and dt_bias of checkpoints).
        norm: `[value_dim]`.
        out: `[hidden, value_heads * value_dim]`.
        eps: of the norm.
    """

    index: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    inputs: torch.Tensor
    conv: torch.Tensor
    log_decay: torch.Tensor
    dt_bias: torch.Tensor
    norm: torch.Tensor
    out: torch.Tensor
    eps: float

    def __call__(
        self,
        hidden: torch.Tensor,
        rnd: Round,
        queries: Queries,
        storage: Storage,
        rotation: Rotation,
    ) -> torch.Tensor:
        """`[T, hidden]` to `[Q, hidden]`; the recurrence runs over every row."""
        values = self.value_heads * self.value_dim
        gate, rest = project(hidden, queries, self.inputs, None, values)
        mixed, write, step = rest.split_with_sizes(
            [len(self.conv), self.value_heads, self.value_heads], dim=-1
        )
        mixed = causal_conv(mixed, self.conv, storage.windows[self.index], rnd.conv)
        keys = self.key_heads * self.key_dim
        query, key, value = mixed.split_with_sizes([keys, keys, values], dim=-1)
        wide = self.log_decay.dtype
        decay = -self.log_decay.exp() * F.softplus(step.to(wide) + self.dt_bias)
        out = gated_delta_rule(
            l2_norm(query.view(-1, self.key_heads, self.key_dim)).mul_(self.key_dim**-0.5),
            l2_norm(key.view(-1, self.key_heads, self.key_dim)),
            value.view(-1, self.value_heads, self.value_dim),
            decay,
            torch.sigmoid(write.to(wide)),
            storage.recurrent[self.index],
            rnd.segments,
        )
        gate = gate.view(-1, self.value_heads, self.value_dim)
        normed = gated_rms_norm(queries.select(out), gate, self.norm, self.eps)
        return F.linear(normed.flatten(-2), self.out)
