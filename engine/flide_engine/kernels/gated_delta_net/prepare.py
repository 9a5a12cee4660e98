"""The second kernel of a Gated DeltaNet layer: all of a chunk that needs no state.

Letters: HK and HV heads, keys of K channels; BT rows of a chunk, BK what K is filled up to; g the
decay summed from the start of a chunk, in powers of two. Within a chunk the written rows solve
`(I + A) written = beta (v - 2^g k h)` with `A[i, j] = beta_i 2^(g_i - g_j) k_i k_j` for j < i, so
they are `x v + w h`, h the state before the chunk.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def prepare_kernel(
    p_q, p_k, p_decay, p_beta, p_start, p_length, p_chunks, p_kept, p_w, p_x, p_scores, p_from,
    p_fade, HK: tl.constexpr, HV: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    SUM: tl.constexpr, SOLVE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_c, i_h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    segment, chunk = tl.load(p_chunks + i_c * 2), tl.load(p_chunks + i_c * 2 + 1)
    if segment < 0:
        return
    i_t = tl.load(p_start + segment) + chunk * BT
    o_i, o_k = tl.arange(0, BT), tl.arange(0, BK)
    m_t = o_i < tl.load(p_length + segment) - chunk * BT
    m_k = m_t[:, None] & (o_k < K)[None, :]
    # All is asked for before anything is waited for.
    o_th = (i_t + o_i) * HV + i_h
    o_tk = ((i_t + o_i) * HK + i_h // (HV // HK))[:, None] * K + o_k
    b_decay = tl.load(p_decay + o_th, mask=m_t, other=0.0)
    b_beta = tl.load(p_beta + o_th, mask=m_t, other=0.0)
    b_k = tl.load(p_k + o_tk, mask=m_k, other=0.0)
    b_q = tl.load(p_q + o_tk, mask=m_k, other=0.0)

    DT: tl.constexpr = p_w.dtype.element_ty
    b_g = tl.cumsum(b_decay.to(SUM) * 1.4426950408889634)
    b_last = tl.sum(tl.where(o_i == BT - 1, b_g, 0.0))
    # Differences are taken before they are rounded: sums grow large where decays are strong.
    b_since = (b_g[:, None] - b_g[None, :]).to(tl.float32)
    b_since = tl.exp2(tl.where(o_i[:, None] >= o_i[None, :], b_since, float("-inf")))
    b_from = tl.exp2(b_g.to(tl.float32))
    b_kept = b_k.to(tl.float32) * tl.exp2((b_last - b_g).to(tl.float32))[:, None]
    i_ch = i_c * HV + i_h
    o_t = i_ch * BT + o_i
    o_wk = o_t[:, None] * BK + o_k
    tl.store(p_fade + i_ch, tl.exp2(b_last.to(tl.float32)))
    tl.store(p_from + o_t, b_from)
    tl.store(p_kept + o_wk, b_kept.to(DT))

    b_a = tl.dot(b_k, tl.trans(b_k), input_precision=PRECISION) * b_since * b_beta[:, None]
    b_scores = tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION) * b_since
    tl.store(p_scores + o_t[:, None] * BT + o_i, b_scores.to(DT))
    b_x = _solve(tl.where(o_i[:, None] > o_i[None, :], b_a, 0.0), BT, SOLVE, PRECISION)
    b_wx = (b_x * (b_beta * b_from)[None, :]).to(DT)
    tl.store(p_w + o_wk, (-tl.dot(b_wx, b_k, input_precision=PRECISION)).to(DT))
    tl.store(p_x + o_t[:, None] * BT + o_i, (b_x * b_beta[None, :]).to(DT))


@triton.jit
def _solve(b_a, BT: tl.constexpr, SOLVE: tl.constexpr, PRECISION: tl.constexpr):
    # (I + A)^-1 by doubling: the inverses of two diagonal blocks, and what lies between them, give
    # that of the block they form. All entries are at most 1 where keys are unit vectors.
    o_i, o_j = tl.arange(0, BT)[:, None], tl.arange(0, BT)[None, :]
    b_x = tl.where(o_i >> 1 == o_j >> 1, -b_a, 0.0) + tl.where(o_i == o_j, 1.0, 0.0)
    for level in tl.range(1, 6, num_stages=1):
        is_below = (o_i >> (level + 1) == o_j >> (level + 1)) & (o_i >> level > o_j >> level)
        b_below = tl.where(is_below, b_a, 0.0).to(SOLVE)
        b_xt = b_x.to(SOLVE)
        b_half = tl.dot(b_xt, b_below, input_precision=PRECISION)
        b_x -= tl.dot(b_half.to(SOLVE), b_xt, input_precision=PRECISION)
    return b_x
