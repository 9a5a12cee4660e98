"""The readout in Triton: a program a read row, its labels in blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from flide_engine.round import Labels


def label_readout_triton(hidden: torch.Tensor, head: torch.Tensor, labels: Labels) -> torch.Tensor:
    """See `label_readout`; labels of no row are not written."""
    (R, D), L = hidden.shape, len(labels.token_ids)
    out = hidden.new_empty(L, dtype=torch.float32)
    readout_kernel[(R,)](
        hidden, head, labels.token_ids, labels.start, out, hidden.stride(0), head.stride(0),
        D=D, BL=16, BD=min(256, triton.next_power_of_2(D)), num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def readout_kernel(
    p_hidden, p_head, p_ids, p_start, p_out, s_hidden, s_head,
    D: tl.constexpr, BL: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    i_r = tl.program_id(0)
    begin, end = tl.load(p_start + i_r), tl.load(p_start + i_r + 1)
    o_l, o_d = tl.arange(0, BL), tl.arange(0, BD)
    p_hidden += i_r.to(tl.int64) * s_hidden
    top = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    for first in range(begin, end, BL):
        m_l = first + o_l < end
        o_head = tl.load(p_ids + first + o_l, mask=m_l, other=0).to(tl.int64) * s_head
        b_logit = tl.zeros([BL], tl.float32)
        for d in range(0, D, BD):
            m_d = d + o_d < D
            b_h = tl.load(p_hidden + d + o_d, mask=m_d, other=0.0).to(tl.float32)
            m_w = m_l[:, None] & m_d[None, :]
            b_w = tl.load(p_head + o_head[:, None] + d + o_d[None, :], mask=m_w, other=0.0)
            b_logit += tl.sum(b_w.to(tl.float32) * b_h[None, :], 1)
        tl.store(p_out + first + o_l, b_logit, mask=m_l)
        b_logit = tl.where(m_l, b_logit, float("-inf"))
        b_top = tl.maximum(top, tl.max(b_logit, 0))
        total = total * tl.exp(top - b_top) + tl.sum(tl.exp(b_logit - b_top), 0)
        top = b_top
    tl.debug_barrier()
    for first in range(begin, end, BL):
        m_l = first + o_l < end
        b_logit = tl.load(p_out + first + o_l, mask=m_l, other=0.0)
        tl.store(p_out + first + o_l, b_logit - top - tl.log(total), mask=m_l)
