"""The gated feed-forward part of a layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from flide_engine.kernels.swiglu import swiglu


@dataclass(frozen=True, slots=True)
class SwiGLU:
    """`down(silu(gate(x)) * up(x))`.

    Attributes:
        gate_up: `[2 * intermediate, hidden]`, gate first.
        down: `[hidden, intermediate]`.
    """

    gate_up: torch.Tensor
    down: torch.Tensor

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[n, hidden]` to `[n, hidden]`."""
        return F.linear(swiglu(F.linear(hidden, self.gate_up)), self.down)
