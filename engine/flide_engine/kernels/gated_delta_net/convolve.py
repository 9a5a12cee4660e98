"""The first kernel of a Gated DeltaNet layer: the convolution, the norms of its heads, and gates.

Letters: T rows of the stream; HK and HV heads of K and V channels, queries first, then keys, then
values; CH channels in all, W width of the convolution; BT rows and BC channels of a program.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flide_engine.kernels.common import sigmoid


@triton.jit(do_not_specialize=["s_source", "T", "blocks"])
def convolve_kernel(
    p_x, p_gates, p_weight, p_log_decay, p_dt_bias, p_windows, p_source, p_save_rows, p_save_states,
    p_q, p_k, p_v, p_decay, p_beta, s_xt, s_gt, s_source, T, blocks, CH: tl.constexpr,
    HK: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, V: tl.constexpr, W: tl.constexpr,
    BT: tl.constexpr, BC: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    if tl.program_id(0) >= blocks * (2 * HK + HV):
        i_n = tl.program_id(0) - blocks * (2 * HK + HV)
        _save_window(i_n, p_x, p_windows, p_save_rows, p_save_states, s_xt, CH, W)
        return
    i_t, i_h = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    i_v = i_h - 2 * HK
    o_k = tl.arange(0, BC)
    o_c = tl.where(i_v < 0, i_h * K, 2 * HK * K + i_v * V) + o_k
    m_c = o_k < tl.where(i_v < 0, K, V)
    o_t = i_t.to(tl.int64) * BT + tl.arange(0, BT)
    m_t = o_t < T
    m_y = m_t[:, None] & m_c[None, :]
    # All is asked for before anything is waited for.
    p_weight += (W - 1) * CH + o_c
    weights = (tl.load(p_weight, mask=m_c, other=0.0),)
    xs = (tl.load(p_x + o_t[:, None] * s_xt + o_c, mask=m_y, other=0.0),)
    for back in tl.static_range(1, W):
        row = tl.load(p_source + (back - 1) * s_source + o_t, mask=m_t, other=-1)
        p_row = tl.where(row >= 0, p_x + row * s_xt, p_windows + (-2 - row) * CH)
        m_x = (row != -1)[:, None] & m_c[None, :]
        b_x = tl.load(p_row[:, None] + o_c, mask=m_x, other=0.0)
        b_weight = tl.load(p_weight - back * CH, mask=m_c, other=0.0)
        xs = xs + (b_x,)  # type: ignore[assignment]  # noqa: RUF005
        weights = weights + (b_weight,)  # type: ignore[assignment]  # noqa: RUF005
    b_y = tl.zeros([BT, BC], tl.float32)
    for back in tl.static_range(0, W):
        b_y += xs[back].to(tl.float32) * weights[back].to(tl.float32)[None, :]
    b_y *= sigmoid(b_y)
    if i_v < 0:
        b_y *= (tl.rsqrt(tl.sum(b_y * b_y, 1) + EPS) * tl.where(i_h < HK, K**-0.5, 1.0))[:, None]
        p_y = tl.where(i_h < HK, p_q, p_k) + (o_t * HK + i_h % HK)[:, None] * K + o_k
        tl.store(p_y, b_y.to(p_q.dtype.element_ty), mask=m_y)
    else:
        o_y = (o_t * HV + i_v)[:, None] * V + o_k
        tl.store(p_v + o_y, b_y.to(p_v.dtype.element_ty), mask=m_y)
        p_write = p_gates + o_t * s_gt + i_v
        b_write = tl.load(p_write, mask=m_t, other=0.0).to(tl.float32)
        tl.store(p_beta + o_t * HV + i_v, sigmoid(b_write), mask=m_t)
        b_step = tl.load(p_write + HV, mask=m_t, other=0.0).to(tl.float32)
        b_decay = -tl.exp(tl.load(p_log_decay + i_v)) * _softplus(b_step + tl.load(p_dt_bias + i_v))
        tl.store(p_decay + o_t * HV + i_v, b_decay, mask=m_t)


@triton.jit
def _softplus(x):
    # log(1 + e), where what 1 + e rounds off is divided out again.
    e = tl.exp(tl.minimum(x, 20.0))
    u = 1.0 + e
    y = tl.where(u == 1.0, e, tl.log(u) * (e / tl.where(u == 1.0, 1.0, u - 1.0)))
    return tl.where(x > 20.0, x, y)


@triton.jit
def _save_window(
    i_n, p_x, p_windows, p_rows, p_states, s_xt, CH: tl.constexpr, W: tl.constexpr
):  # fmt: skip
    state = tl.load(p_states + i_n)
    if state >= 0:
        for place in tl.static_range(0, W - 1):
            row = tl.load(p_rows + i_n * (W - 1) + place)
            for c in range(0, CH, 1024):
                o_c = c + tl.arange(0, 1024)
                b_x = tl.load(p_x + row * s_xt + o_c, mask=o_c < CH, other=0.0)
                p_to = p_windows + (state * (W - 1) + place) * CH
                tl.store(p_to + o_c, b_x, mask=o_c < CH)
