"""Norms with sums: Triton against the reference."""

from __future__ import annotations

import pytest
import torch

from flide_engine.kernels.fused_norm.reference import (
    add_rms_norm_reference,
    rms_norm_reference,
)
from flide_engine.kernels.fused_norm.triton_kernel import (
    add_rms_norm_triton,
    rms_norm_triton,
)
from tests.kernels.rounds import TOLERANCE, relative_error

EPS = 1e-5
GPU = [
    pytest.param(3001, 1024, marks=pytest.mark.gpu),
    pytest.param(777, 2560, marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("count", "size"), [(5, 40), (3, 100), *GPU])
@pytest.mark.parametrize("selected", [False, True], ids=["all", "selected"])
def test_sum_and_norm_give_what_the_reference_gives(
    count: int, size: int, dtype: torch.dtype, selected: bool, device: torch.device
) -> None:
    """Of all rows or of some; the last norm of a model is wider than its rows."""
    rng = torch.Generator().manual_seed(size)
    residual = torch.randn(count, size, generator=rng).to(dtype)
    rows = torch.tensor([count - 1, 0, 1]) if selected else None
    x = torch.randn(3 if selected else count, size + 8, generator=rng).to(dtype)[:, :size]
    weight = torch.rand(size, generator=rng) * 2
    wide = (x.double(), residual.double(), weight.double())
    wanted = add_rms_norm_reference(*wide, EPS, rows)
    operands = (x.to(device), residual.to(device), weight.to(device))
    picked = None if rows is None else rows.to(device)
    for out_dtype in (None, torch.float32):
        total, normed = add_rms_norm_triton(*operands, EPS, picked, out_dtype)
        assert (total.dtype, normed.dtype) == (dtype, out_dtype or dtype)
        assert relative_error(total, wanted[0]) < TOLERANCE[dtype]
        assert relative_error(normed, wanted[1]) < TOLERANCE[dtype]
    alone = rms_norm_triton(operands[0], operands[2], EPS)
    assert relative_error(alone, rms_norm_reference(wide[0], wide[2], EPS)) < TOLERANCE[dtype]
