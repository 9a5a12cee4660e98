"""The norms in Triton: a program norms one row of the stream.

Letters: T rows, Q of them computed on, D their size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch


def rms_norm_triton(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See `rms_norm`; rows of x may lie apart."""
    return _norm(x, None, weight, eps, None, x.dtype)[1]


def add_rms_norm_triton(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rows: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `add_rms_norm`; rows of x and residual may lie apart."""
    return _norm(x, residual, weight, eps, rows, dtype or x.dtype)


def _norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    rows: torch.Tensor | None,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    Q, D = x.shape
    total = x if residual is None else x.new_empty(Q, D)
    out = x.new_empty(Q, D, dtype=dtype)
    norm_kernel[(Q,)](
        x, residual, weight, rows, total, out, x.stride(0),
        0 if residual is None else residual.stride(0), eps,
        D=D, BD=triton.next_power_of_2(D), num_warps=4 if D <= 1024 else 8,
    )  # fmt: skip
    return total, out


@triton.jit
def norm_kernel(
    p_x, p_residual, p_weight, p_rows, p_total, p_out, s_xt, s_rt, eps, D: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    i_q = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BD)
    m_d = o_d < D
    b_x = tl.load(p_x + i_q * s_xt + o_d, mask=m_d, other=0.0).to(tl.float32)
    if p_residual is not None:
        i_t = i_q
        if p_rows is not None:
            i_t = tl.load(p_rows + i_q)
        b_x += tl.load(p_residual + i_t * s_rt + o_d, mask=m_d, other=0.0).to(tl.float32)
        b_total = b_x.to(p_total.dtype.element_ty)
        tl.store(p_total + i_q * D + o_d, b_total, mask=m_d)
        b_x = b_total.to(tl.float32)
    b_x *= tl.rsqrt(tl.sum(b_x * b_x) / D + eps)
    b_x *= tl.load(p_weight + o_d, mask=m_d, other=0.0)
    tl.store(p_out + i_q * D + o_d, b_x.to(p_out.dtype.element_ty), mask=m_d)
