"""The other kernels of a Gated DeltaNet layer: walk the states of trunks, then read every chunk.

Letters as in `prepare`; h a state. The walk holds it as `[V, K]`: products then take what one step
hands to the next from registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flide_engine.kernels.common import sigmoid


@triton.jit
def _state(index, p_states, p_scratch, num_states, i_h, HV: tl.constexpr, SIZE: tl.constexpr):
    # The head's state of that name (round.Segments).
    if index < num_states:
        p = p_states + (index * HV + i_h) * SIZE
    else:
        p = p_scratch + ((index - num_states) * HV + i_h) * SIZE
    return p


@triton.jit(do_not_specialize=["num_states"])
def walk_kernel(
    p_v, p_kept, p_w, p_x, p_fade, p_states, p_scratch, p_h, p_start, p_length, p_state_in,
    p_state_out, num_states, HV: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr,
    BK: tl.constexpr, VV: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_s, i_h = tl.program_id(0) // HV, tl.program_id(0) % HV
    count = (tl.load(p_length + i_s).to(tl.int32) + BT - 1) // BT
    if count <= 0:
        return
    # Chunks of the trunks before this one.
    i_c = tl.zeros([], tl.int64)
    for i in range(0, i_s, 64):
        o_s = i + tl.arange(0, 64)
        i_c += tl.sum((tl.load(p_length + o_s, mask=o_s < i_s, other=0) + BT - 1) // BT)
    state_in = tl.load(p_state_in + i_s)
    o_t, o_k = tl.arange(0, BT), tl.arange(0, BK)
    o_v = tl.program_id(1) * BV + tl.arange(0, BV)
    m_h = (o_v < V)[:, None] & (o_k < K)[None, :]
    o_state = o_v[:, None] + o_k[None, :] * V
    p_in = _state(state_in, p_states, p_scratch, num_states, i_h, HV, K * V)
    b_h = tl.load(p_in + o_state, mask=m_h & (state_in >= 0), other=0.0)
    i_ch = i_c * HV + i_h
    p_kept += i_ch * (BT * BK) + o_t[:, None] * BK + o_k
    p_w += i_ch * (BT * BK) + o_t[:, None] * BK + o_k
    p_x += i_ch * (BT * BT) + o_t[:, None] * BT + o_t
    p_v += (tl.load(p_start + i_s) * HV + i_h) * V + (o_t * (HV * V))[:, None] + o_v
    p_h += i_ch * (VV * BK) + o_v[:, None] * BK + o_k
    p_fade += i_ch
    p_state_out += i_c
    DT: tl.constexpr = p_w.dtype.element_ty
    length = tl.load(p_length + i_s).to(tl.int32)
    fade, state_out = tl.load(p_fade), tl.load(p_state_out)
    for n in tl.range(0, count):
        # The next chunk's numbers are asked for early.
        has_next = n + 1 < count
        next_fade = tl.load(p_fade + (n + 1) * HV, mask=has_next, other=0.0)
        next_out = tl.load(p_state_out + (n + 1), mask=has_next, other=-1)
        b_ht = b_h.to(DT)
        tl.store(p_h, b_ht)
        m_v = (n * BT + o_t < length)[:, None] & (o_v < V)[None, :]
        b_v = tl.load(p_v, mask=m_v, other=0.0)
        b_wrote = tl.dot(tl.trans(b_v), tl.trans(tl.load(p_x)), input_precision=PRECISION)
        b_wrote = tl.dot(b_ht, tl.trans(tl.load(p_w)), b_wrote, input_precision=PRECISION).to(DT)
        b_h = tl.dot(b_wrote, tl.load(p_kept), b_h * fade, input_precision=PRECISION)
        if state_out >= 0:
            p_to = _state(state_out, p_states, p_scratch, num_states, i_h, HV, K * V)
            tl.store(p_to + o_state, b_h, mask=m_h)
        fade, state_out = next_fade, next_out
        p_v += BT * HV * V
        p_x += HV * BT * BT
        p_kept += HV * BT * BK
        p_w += HV * BT * BK
        p_h += HV * VV * BK


@triton.jit(do_not_specialize=["slots", "num_states"])
def read_kernel(
    p_q, p_v, p_kept, p_w, p_x, p_scores, p_from, p_fade, p_h, p_states, p_scratch, p_carry, p_gate,
    p_norm, p_out, p_start, p_length, p_state_in, p_chunks, slots, s_gt, num_states, eps,
    HK: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_c, i_h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    segment, chunk = tl.load(p_chunks + i_c * 2), tl.load(p_chunks + i_c * 2 + 1)
    # The first chunk of a branch stands for all of them.
    if (segment < 0) | ((chunk > 0) & (segment >= slots)):
        return
    i_t = tl.load(p_start + segment) + chunk * BT
    length = (tl.load(p_length + segment) - chunk * BT).to(tl.int32)
    state_in = tl.load(p_state_in + segment)
    o_t, o_k, o_v = tl.arange(0, BT), tl.arange(0, BK), tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    m_h = m_v[:, None] & m_k[None, :]
    o_state = o_v[:, None] + o_k[None, :] * V
    i_ch = i_c * HV + i_h
    DT: tl.constexpr = p_w.dtype.element_ty
    p_in = _state(state_in, p_states, p_scratch, num_states, i_h, HV, K * V)
    if segment < slots:
        length = tl.minimum(length, BT)
        b_ht = tl.load(p_h + i_ch * (BV * BK) + o_v[:, None] * BK + o_k)
    else:
        b_ht = tl.load(p_in + o_state, mask=m_h & (state_in >= 0), other=0.0).to(DT)
    b_norm = tl.load(p_norm + o_v, mask=m_v, other=0.0)
    for n in tl.range(0, length, BT, num_stages=1):
        # All is asked for before anything is waited for.
        o_row = i_t + n + o_t
        m_t = n + o_t < length
        m_o = m_t[:, None] & m_v[None, :]
        b_w = tl.load(p_w + (i_ch * BT + o_t)[:, None] * BK + o_k)
        b_x = tl.load(p_x + (i_ch * BT + o_t)[:, None] * BT + o_t)
        b_v = tl.load(p_v + (o_row * HV + i_h)[:, None] * V + o_v, mask=m_o, other=0.0)
        p_qt = p_q + (o_row * HK + i_h // (HV // HK))[:, None] * K + o_k
        b_q = tl.load(p_qt, mask=m_t[:, None] & m_k[None, :], other=0.0)
        b_scores = tl.load(p_scores + (i_ch * BT + o_t)[:, None] * BT + o_t)
        b_from = tl.load(p_from + i_ch * BT + o_t)
        b_gate = tl.load(p_gate + o_row[:, None] * s_gt + i_h * V + o_v, mask=m_o, other=0.0)
        b_wrote = tl.dot(tl.trans(b_v), tl.trans(b_x), input_precision=PRECISION)
        b_wrote = tl.dot(b_ht, tl.trans(b_w), b_wrote, input_precision=PRECISION).to(DT)
        b_o = tl.dot(b_ht, tl.trans(b_q), input_precision=PRECISION) * b_from[None, :]
        b_o = tl.dot(b_wrote, tl.trans(b_scores), b_o, input_precision=PRECISION)
        # The norm, and its gate.
        b_o = tl.trans(b_o)
        b_o *= tl.rsqrt(tl.sum(b_o * b_o, 1) / V + eps)[:, None] * b_norm[None, :]
        b_gate = b_gate.to(tl.float32)
        b_o *= b_gate * sigmoid(b_gate)
        p_o = p_out + (o_row * HV + i_h)[:, None] * V + o_v
        tl.store(p_o, b_o.to(p_out.dtype.element_ty), mask=m_o)
        if n + BT < length:
            # From the third chunk of a branch on its state is kept in memory: few are so long.
            b_h = tl.load(p_in + o_state, mask=m_h & (state_in >= 0), other=0.0)
            b_h *= tl.load(p_fade + i_ch)
            b_kept = tl.load(p_kept + (i_ch * BT + o_t)[:, None] * BK + o_k)
            b_h = tl.dot(b_wrote, b_kept, b_h, input_precision=PRECISION)
            b_ht = b_h.to(DT)
            if n + 2 * BT < length:
                p_in = p_carry + ((i_t + n) // BT * HV + i_h) * (K * V)
                tl.store(p_in + o_state, b_h, mask=m_h)
                tl.debug_barrier()
                state_in = tl.zeros_like(state_in)
        i_ch += HV
