"""The door to the gated activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.kernels.swiglu.reference import swiglu_reference

if TYPE_CHECKING:
    import torch


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    """`silu(gate) * up` of `[T, 2 I]`, gate first; `[T, I]` in its dtype."""
    if not gate_up.is_cuda:
        return swiglu_reference(gate_up)
    from flide_engine.kernels.swiglu.triton_kernel import swiglu_triton

    return swiglu_triton(gate_up)
