"""The gated activation in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F

if TYPE_CHECKING:
    import torch


def swiglu_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """See `swiglu`."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)
