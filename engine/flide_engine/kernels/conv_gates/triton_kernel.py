"""The operands of the gated delta rule in Triton: one program a block of rows and a head.

Letters: T rows, HK and HV heads of K and V channels, queries first, then keys, then values; W width
of the convolution, BT rows of a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from flide_engine.kernels.causal_conv.triton_kernel import convolve, save_window, source_arrays
from flide_engine.kernels.conv_gates.reference import L2_EPS

if TYPE_CHECKING:
    import torch

    from flide_engine.kernels.conv_gates.entry import Operands
    from flide_engine.round import ConvSources

ROWS, WARPS = 32, 4


def conv_gates_triton(
    mixed: torch.Tensor,
    gates: torch.Tensor,
    weight: torch.Tensor,
    log_decay: torch.Tensor,
    dt_bias: torch.Tensor,
    windows: torch.Tensor,
    sources: ConvSources,
    key_dim: int,
    value_dim: int,
) -> Operands:
    """See `conv_gates`; query, key and value are in the dtype of `mixed`.

    Args:
        mixed, gates: as there; rows may lie apart.
        weight, log_decay, dt_bias, windows, sources, key_dim, value_dim: as there, dense; no state
            is both read and saved in one round.
    """
    (T, CH), W, K, V, HV = mixed.shape, weight.shape[1], key_dim, value_dim, len(log_decay)
    HK = (CH - HV * V) // (2 * K)
    query, key = mixed.new_empty(T, HK, K), mixed.new_empty(T, HK, K)
    value = mixed.new_empty(T, HV, V)
    decay, beta = log_decay.new_empty(T, HV), log_decay.new_empty(T, HV)
    blocks = triton.cdiv(T, ROWS)
    conv_gates_kernel[(blocks + len(sources.save_states), 2 * HK + HV)](
        mixed, gates, weight, log_decay, dt_bias, windows, *source_arrays(sources),
        query, key, value, decay, beta, mixed.stride(0), gates.stride(0), T, blocks,
        CH=CH, HK=HK, HV=HV, K=K, V=V, W=W, BT=ROWS, BC=triton.next_power_of_2(max(K, V)),
        EPS=L2_EPS, num_warps=WARPS,
    )  # fmt: skip
    return query, key, value, decay, beta


@triton.jit(do_not_specialize=["s_source", "T", "blocks"])
def conv_gates_kernel(
    p_x, p_gates, p_weight, p_log_decay, p_dt_bias, p_windows, p_source, p_save_rows,
    p_save_states, s_source, p_q, p_k, p_v, p_decay, p_beta, s_xt, s_gt, T, blocks,
    CH: tl.constexpr, HK: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    W: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    i_t, i_h = tl.program_id(0), tl.program_id(1)
    i_v = i_h - 2 * HK
    o_k = tl.arange(0, BC)
    o_c = tl.where(i_v < 0, i_h * K, 2 * HK * K + i_v * V) + o_k
    m_c = o_k < tl.where(i_v < 0, K, V)
    if i_t >= blocks:
        save_window(i_t - blocks, p_x, p_windows, p_save_rows, p_save_states, s_xt, o_c, m_c, CH, W)
        return
    o_t = i_t.to(tl.int64) * BT + tl.arange(0, BT)
    m_t = o_t < T
    m_y = m_t[:, None] & m_c[None, :]
    b_y = convolve(p_x, p_weight, p_windows, p_source, s_source, s_xt, o_t, m_t, o_c, m_c, CH, W)
    if i_v < 0:
        b_y = tl.where(m_c[None, :], b_y, 0.0)
        b_y *= tl.rsqrt(tl.sum(b_y * b_y, 1) + EPS)[:, None] * tl.where(i_h < HK, K**-0.5, 1.0)
        o_y = (o_t[:, None] * HK + i_h % HK) * K + o_k
        if i_h < HK:
            tl.store(p_q + o_y, b_y.to(p_q.dtype.element_ty), mask=m_y)
        else:
            tl.store(p_k + o_y, b_y.to(p_k.dtype.element_ty), mask=m_y)
    else:
        o_y = (o_t[:, None] * HV + i_v) * V + o_k
        tl.store(p_v + o_y, b_y.to(p_v.dtype.element_ty), mask=m_y)
        b_write = tl.load(p_gates + o_t * s_gt + i_v, mask=m_t, other=0.0).to(tl.float32)
        tl.store(p_beta + o_t * HV + i_v, tl.sigmoid(b_write), mask=m_t)
        b_step = tl.load(p_gates + o_t * s_gt + (HV + i_v), mask=m_t, other=0.0).to(tl.float32)
        b_decay = -tl.exp(tl.load(p_log_decay + i_v)) * _softplus(b_step + tl.load(p_dt_bias + i_v))
        tl.store(p_decay + o_t * HV + i_v, b_decay, mask=m_t)


@triton.jit
def _softplus(x):
    # log(1 + e), where what 1 + e rounds off is divided out again.
    e = tl.exp(tl.minimum(x, 20.0))
    u = 1.0 + e
    y = tl.where(u == 1.0, e, tl.log(u) * (e / tl.where(u == 1.0, 1.0, u - 1.0)))
    return tl.where(x > 20.0, x, y)
