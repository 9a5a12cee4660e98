"""The Triton kernels of the gated delta rule.

Letters: T rows, HK and HV heads, K and V sizes of a state; BT rows of a chunk, BK and BV blocks of
a state; g the decay summed from the start of a chunk, in powers of two. Within a chunk the written
rows solve `(I + A) written = beta (v - 2^g k h)` with `A[i, j] = beta_i 2^(g_i - g_j) k_i k_j` for
j < i.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _solve(b_k, b_g, b_beta, BT: tl.constexpr, ST: tl.constexpr, PRECISION: tl.constexpr):
    # (I + A)^-1 by doubling: the inverses of two diagonal blocks, and what lies between them, give
    # that of the block they form. All entries are at most 1 where keys are unit vectors.
    o_i, o_j = tl.arange(0, BT)[:, None], tl.arange(0, BT)[None, :]
    b_since = tl.where(o_i > o_j, b_g[:, None] - b_g[None, :], float("-inf"))
    b_a = tl.dot(b_k, tl.trans(b_k), input_precision=PRECISION) * b_beta[:, None] * tl.exp2(b_since)
    b_x = tl.where(o_i >> 1 == o_j >> 1, -b_a, 0.0) + tl.where(o_i == o_j, 1.0, 0.0)
    for level in tl.static_range(1, 6):
        is_below = (o_i >> (level + 1) == o_j >> (level + 1)) & (o_i >> level > o_j >> level)
        b_below = tl.where(is_below, b_a, 0.0).to(ST)
        b_xt = b_x.to(ST)
        b_half = tl.dot(b_xt, b_below, input_precision=PRECISION)
        b_x -= tl.dot(b_half.to(ST), b_xt, input_precision=PRECISION)
    return b_x


@triton.jit
def _state(index, p_states, p_scratch, num_states, i_h, HV: tl.constexpr, SIZE: tl.constexpr):
    # The head's state of that name (round.Segments).
    if index < num_states:
        p = p_states + (index * HV + i_h) * SIZE
    else:
        p = p_scratch + ((index - num_states) * HV + i_h) * SIZE
    return p


@triton.jit(do_not_specialize=["slots"])
def prepare_kernel(
    p_k, p_v, p_decay, p_beta, p_start, p_length, p_chunks, slots, p_w, p_u, p_inverse, p_sums,
    s_kt, s_vt, HK: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BT: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, BV: tl.constexpr,
    ST: tl.constexpr, LOG2_E: tl.constexpr,
):  # fmt: skip
    i_c, i_h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    segment, chunk = tl.load(p_chunks + i_c * 2), tl.load(p_chunks + i_c * 2 + 1)
    if segment < 0:
        return
    i_t = tl.load(p_start + segment) + chunk * BT
    n_t = (tl.load(p_length + segment) - chunk * BT).to(tl.int32)
    i_th = i_t * HV + i_h
    o_i, o_k = tl.arange(0, BT), tl.arange(0, BK)
    m_t = o_i < n_t
    m_k = m_t[:, None] & (o_k < K)[None, :]
    b_g = tl.cumsum(tl.load(p_decay + i_th + o_i * HV, mask=m_t, other=0.0) * LOG2_E)
    b_beta = tl.load(p_beta + i_th + o_i * HV, mask=m_t, other=0.0)
    p_k += i_t * s_kt + i_h // (HV // HK) * K
    b_k = tl.load(p_k + (o_i[:, None] * s_kt + o_k), mask=m_k, other=0.0)
    b_k = b_k.to(p_v.dtype.element_ty)
    b_x = _solve(b_k, b_g, b_beta, BT, ST, PRECISION)
    o_x = o_i[:, None] * BT + o_i[None, :]
    tl.store(p_inverse + (i_c * HV + i_h) * (BT * BT) + o_x, b_x.to(p_inverse.dtype.element_ty))
    tl.store(p_sums + i_th + o_i * HV, b_g, mask=m_t)
    if segment >= slots:
        return
    # What a chunk of a trunk writes is u - w h, h the state before it.
    b_wx = (b_x * (b_beta * tl.exp2(b_g))[None, :]).to(b_k.dtype)
    b_w = tl.dot(b_wx, b_k, input_precision=PRECISION)
    o_w = o_i[:, None] * (HV * K) + o_k
    tl.store(p_w + i_th * K + o_w, b_w.to(p_w.dtype.element_ty), mask=m_k)
    b_ux = (b_x * b_beta[None, :]).to(b_k.dtype)
    for i_v in tl.static_range(0, V, BV):
        o_v = i_v + tl.arange(0, BV)
        m_v = m_t[:, None] & (o_v < V)[None, :]
        o_vt = o_i[:, None] * s_vt + o_v
        b_v = tl.load(p_v + i_t * s_vt + i_h * V + o_vt, mask=m_v, other=0.0)
        b_u = tl.dot(b_ux, b_v, input_precision=PRECISION)
        o_u = o_i[:, None] * (HV * V) + o_v
        tl.store(p_u + i_th * V + o_u, b_u.to(p_u.dtype.element_ty), mask=m_v)


@triton.jit(do_not_specialize=["num_states"])
def walk_kernel(
    p_k, p_w, p_u, p_sums, p_states, p_scratch, p_h, p_start, p_length, p_state_in, p_state_out,
    s_kt, num_states, HK: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BT: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, BV: tl.constexpr,
    BS: tl.constexpr,
):  # fmt: skip
    i_s, i_h = tl.program_id(0) // HV, tl.program_id(0) % HV
    length = tl.load(p_length + i_s).to(tl.int32)
    if length <= 0:
        return
    # Chunks of the trunks before this one.
    i_c = tl.zeros([1], tl.int64).sum()
    for i in range(0, i_s, BS):
        o_s = i + tl.arange(0, BS)
        before = tl.load(p_length + o_s, mask=o_s < i_s, other=0)
        i_c += tl.sum((before + BT - 1) // BT)
    state_in = tl.load(p_state_in + i_s)
    o_i, o_k = tl.arange(0, BT), tl.arange(0, BK)
    o_v = tl.program_id(1) * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    o_h, m_h = o_k[:, None] * V + o_v, m_k[:, None] & m_v[None, :]
    p_in = _state(state_in, p_states, p_scratch, num_states, i_h, HV, K * V)
    b_h = tl.load(p_in + o_h, mask=m_h & (state_in >= 0), other=0.0)
    i_th = tl.load(p_start + i_s) * HV + i_h
    p_k += tl.load(p_start + i_s) * s_kt + i_h // (HV // HK) * K
    p_w += i_th * K
    p_u += i_th * V
    p_sums += i_th
    p_h += (i_c * HV + i_h) * (K * V)
    o_w, o_u = o_i[:, None] * (HV * K) + o_k, o_i[:, None] * (HV * V) + o_v
    o_kt = o_i[:, None] * s_kt + o_k
    DT: tl.constexpr = p_w.dtype.element_ty
    for n in tl.range(0, length, BT):
        b_ht = b_h.to(DT)
        tl.store(p_h + o_h, b_ht, mask=m_h)
        m_t = n + o_i < length
        m_tk, m_tv = m_t[:, None] & m_k[None, :], m_t[:, None] & m_v[None, :]
        b_w = tl.load(p_w + o_w, mask=m_tk, other=0.0)
        b_u = tl.load(p_u + o_u, mask=m_tv, other=0.0).to(tl.float32)
        b_k = tl.load(p_k + o_kt, mask=m_tk, other=0.0).to(DT)
        b_g = tl.load(p_sums + o_i * HV, mask=m_t, other=0.0)
        b_last = tl.load(p_sums + (tl.minimum(BT, length - n) - 1) * HV)
        b_u -= tl.dot(b_w, b_ht, input_precision=PRECISION)
        b_u *= tl.exp2(b_last - b_g)[:, None]
        b_h = tl.dot(tl.trans(b_k), b_u.to(DT), b_h * tl.exp2(b_last), input_precision=PRECISION)
        state_out = tl.load(p_state_out + i_c)
        if state_out >= 0:
            p_to = _state(state_out, p_states, p_scratch, num_states, i_h, HV, K * V)
            tl.store(p_to + o_h, b_h, mask=m_h)
        i_c += 1
        p_k += BT * s_kt
        p_w += BT * HV * K
        p_u += BT * HV * V
        p_sums += BT * HV
        p_h += HV * K * V


@triton.jit(do_not_specialize=["slots", "num_states"])
def read_kernel(
    p_q, p_k, p_v, p_sums, p_beta, p_inverse, p_h, p_states, p_scratch, p_out, p_start, p_length,
    p_state_in, p_chunks, slots, s_qt, s_kt, s_vt, num_states, HK: tl.constexpr, HV: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
    BV: tl.constexpr,
):  # fmt: skip
    i_c, i_h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    segment, chunk = tl.load(p_chunks + i_c * 2), tl.load(p_chunks + i_c * 2 + 1)
    # The first chunk of a branch stands for all of them.
    if (segment < 0) | ((chunk > 0) & (segment >= slots)):
        return
    i_t = tl.load(p_start + segment) + chunk * BT
    length = (tl.load(p_length + segment) - chunk * BT).to(tl.int32)
    o_i, o_k = tl.arange(0, BT), tl.arange(0, BK)
    o_v = tl.program_id(2) * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    o_h, m_h = o_k[:, None] * V + o_v, m_k[:, None] & m_v[None, :]
    DT: tl.constexpr = p_v.dtype.element_ty
    if segment < slots:
        length = tl.minimum(length, BT)
        b_h = tl.load(p_h + (i_c * HV + i_h) * (K * V) + o_h, mask=m_h, other=0.0).to(tl.float32)
    else:
        state_in = tl.load(p_state_in + segment)
        p_in = _state(state_in, p_states, p_scratch, num_states, i_h, HV, K * V)
        b_h = tl.load(p_in + o_h, mask=m_h & (state_in >= 0), other=0.0)
    i_th = i_t * HV + i_h
    p_q += i_t * s_qt + i_h // (HV // HK) * K
    p_k += i_t * s_kt + i_h // (HV // HK) * K
    p_v += i_t * s_vt + i_h * V
    p_inverse += (i_c * HV + i_h) * (BT * BT)
    o_x = o_i[:, None] * BT + o_i[None, :]
    m_past = o_i[:, None] >= o_i[None, :]
    for n in tl.range(0, length, BT, num_stages=1):
        m_t = n + o_i < length
        m_tk, m_tv = m_t[:, None] & m_k[None, :], m_t[:, None] & m_v[None, :]
        b_k = tl.load(p_k + (o_i[:, None] * s_kt + o_k), mask=m_tk, other=0.0).to(DT)
        # Rows past the end decay like the last one.
        b_g = tl.load(p_sums + i_th + tl.minimum(o_i, length - n - 1) * HV)
        b_beta = tl.load(p_beta + i_th + o_i * HV, mask=m_t, other=0.0)
        b_ht, b_eg = b_h.to(DT), tl.exp2(b_g)
        b_wrote = tl.dot(b_k, b_ht, input_precision=PRECISION) * (b_eg * b_beta)[:, None]
        b_v = tl.load(p_v + (o_i[:, None] * s_vt + o_v), mask=m_tv, other=0.0)
        b_wrote = (b_v.to(tl.float32) * b_beta[:, None] - b_wrote).to(DT)
        b_wrote = tl.dot(tl.load(p_inverse + o_x), b_wrote, input_precision=PRECISION)
        b_q = tl.load(p_q + (o_i[:, None] * s_qt + o_k), mask=m_tk, other=0.0).to(DT)
        b_o = tl.dot(b_q, b_ht, input_precision=PRECISION) * b_eg[:, None]
        b_since = tl.where(m_past, b_g[:, None] - b_g[None, :], float("-inf"))
        b_s = tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION) * tl.exp2(b_since)
        b_o = tl.dot(b_s.to(DT), b_wrote.to(DT), b_o, input_precision=PRECISION)
        o_out = o_i[:, None] * (HV * V) + o_v
        tl.store(p_out + i_th * V + o_out, b_o.to(p_out.dtype.element_ty), mask=m_tv)
        if n + BT < length:
            b_last = tl.load(p_sums + i_th + (BT - 1) * HV)
            b_wrote *= tl.exp2(b_last - b_g)[:, None]
            b_h = tl.dot(
                tl.trans(b_k), b_wrote.to(DT), b_h * tl.exp2(b_last), input_precision=PRECISION
            )
        i_th += BT * HV
        p_q += BT * s_qt
        p_k += BT * s_kt
        p_v += BT * s_vt
        p_inverse += HV * BT * BT
