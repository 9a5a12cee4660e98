"""A Gated DeltaNet layer over the flat stream (Yang et al., 2025; paper, section 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.nn.functional as F

from flide_engine.kernels.conv_gates import conv_gates
from flide_engine.kernels.fused_norm import gated_rms_norm
from flide_engine.kernels.gated_delta_rule import gated_delta_rule
from flide_engine.layers.projection import project

if TYPE_CHECKING:
    import torch

    from flide_engine.layers.attention import Rotation
    from flide_engine.round import Queries, Round
    from flide_engine.storage import Storage


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """A short convolution, the gated delta rule, and a gated norm.

    Attributes:
        index: which recurrent layer of the model this is.
        value_heads, key_dim, value_dim: shapes; the conv channels are queries, then keys, then
            value_heads * value_dim values.
        inputs: `[value_heads * value_dim + channels + 2 * value_heads, hidden]`: the gate of the
            norm (z), the conv channels, then write strengths (b) and decays (a).
        conv: `[channels, W]`.
        log_decay, dt_bias: `[value_heads]` in at least float32 (A_log and dt_bias of checkpoints).
        norm: `[value_dim]`.
        out: `[hidden, value_heads * value_dim]`.
        eps: of the norm.
    """

    index: int
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
        mixed, gates = rest.split_with_sizes([len(self.conv), 2 * self.value_heads], dim=-1)
        operands = conv_gates(
            mixed,
            gates,
            self.conv,
            self.log_decay,
            self.dt_bias,
            storage.windows[self.index],
            rnd.conv,
            self.key_dim,
            self.value_dim,
        )
        out = gated_delta_rule(*operands, storage.recurrent[self.index], rnd.segments)
        gate = gate.view(-1, self.value_heads, self.value_dim)
        normed = gated_rms_norm(out, gate, self.norm, self.eps, queries.rows)
        return F.linear(normed.flatten(-2), self.out)
