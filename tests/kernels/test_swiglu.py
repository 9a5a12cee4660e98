"""The gated activation: Triton against the reference."""

from __future__ import annotations

import pytest
import torch

from flide_engine.kernels.swiglu.reference import swiglu_reference
from flide_engine.kernels.swiglu.triton_kernel import swiglu_triton
from tests.kernels.rounds import TOLERANCE, relative_error

GPU = [pytest.param(n, i, marks=pytest.mark.gpu) for n, i in ((401, 3584), (3001, 9216))]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("count", "size"), [(1, 1), (5, 52), (3, 1100), *GPU])
def test_activation_gives_what_the_reference_gives(
    count: int, size: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Odd sizes, and larger than a block."""
    rng = torch.Generator().manual_seed(size)
    gate_up = torch.randn(count, 2 * size, generator=rng).to(dtype) * 3
    out = swiglu_triton(gate_up.to(device))
    assert out.dtype == dtype
    assert relative_error(out, swiglu_reference(gate_up.double())) < TOLERANCE[dtype]
