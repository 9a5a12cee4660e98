"""The norms in Triton: a program norms one row of the stream, or a few rows of heads.

Letters: T rows, Q of them computed on, D their size; N = Q HV rows of heads, V their size, BN of a
program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

HEAD_ROWS, HEAD_WARPS = 16, 4


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


def gated_rms_norm_triton(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rows: torch.Tensor | None = None,
) -> torch.Tensor:
    """See `gated_rms_norm`; rows of x and gate may lie apart, their heads may not."""
    Q, HV, V = gate.shape
    out = gate.new_empty(Q, HV, V)
    gated_norm_kernel[(triton.cdiv(Q * HV, HEAD_ROWS),)](
        x, gate, weight, rows, out, x.stride(0), gate.stride(0), Q * HV, eps,
        HV=HV, V=V, BN=HEAD_ROWS, BV=triton.next_power_of_2(V), num_warps=HEAD_WARPS,
    )  # fmt: skip
    return out


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


@triton.jit(do_not_specialize=["N"])
def gated_norm_kernel(
    p_x, p_gate, p_weight, p_rows, p_out, s_xt, s_gt, N, eps, HV: tl.constexpr, V: tl.constexpr,
    BN: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    o_n, o_v = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BV)
    i_q, o_hv = (o_n // HV).to(tl.int64), (o_n % HV * V)[:, None] + o_v
    m_n = o_n < N
    m = m_n[:, None] & (o_v < V)[None, :]
    i_t = i_q
    if p_rows is not None:
        i_t = tl.load(p_rows + i_q, mask=m_n, other=0)
    b_x = tl.load(p_x + i_t[:, None] * s_xt + o_hv, mask=m, other=0.0).to(tl.float32)
    b_gate = tl.load(p_gate + i_q[:, None] * s_gt + o_hv, mask=m, other=0.0).to(tl.float32)
    b_x *= tl.rsqrt(tl.sum(b_x * b_x, 1) / V + eps)[:, None]
    b_x *= tl.load(p_weight + o_v, mask=o_v < V, other=0.0)[None, :]
    b_x *= b_gate * tl.sigmoid(b_gate)
    tl.store(p_out + i_q[:, None] * (HV * V) + o_hv, b_x.to(p_out.dtype.element_ty), mask=m)
