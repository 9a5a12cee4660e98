"""Norms, rotary positions and page writes in Triton: one program a block of rows and a head.

Letters: T rows, Q query rows, H query heads, HKV key heads, D head size, R half of what turns; BT
rows of a program. A head is held in three parts: both halves of what turns, and the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

ROWS, WARPS = 8, 4


def rope_write_triton(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    slot_mapping: torch.Tensor,
    rows: torch.Tensor | None = None,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `rope_write`; what is given is left as it is, heads may lie apart.

    Returns:
        Dense `[Q, H, D]` and `[T, HKV, D]`.
    """
    (Q, H, D), (T, HKV, _) = query.shape, key.shape
    R = rotation[0].shape[-1]
    turned, keys = query.new_empty(Q, H, D), key.new_empty(T, HKV, D)
    rope_write_kernel[(triton.cdiv(max(Q, T), ROWS), H + HKV)](
        query, key, value, *rotation, key_pages, value_pages, slot_mapping, rows, q_norm, k_norm,
        turned, keys, *query.stride()[:2], *key.stride()[:2], *value.stride()[:2], Q, T, eps,
        H=H, HKV=HKV, D=D, R=R, BT=ROWS, BR=triton.next_power_of_2(R),
        BP=triton.next_power_of_2(max(D - 2 * R, 1)), BD=triton.next_power_of_2(D),
        num_warps=WARPS,
    )  # fmt: skip
    return turned, keys


@triton.jit(do_not_specialize=["Q", "T"])
def rope_write_kernel(
    p_q, p_k, p_v, p_cos, p_sin, p_key_pages, p_value_pages, p_places, p_rows, p_q_norm, p_k_norm,
    p_q_out, p_k_out, s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, Q, T, eps, H: tl.constexpr,
    HKV: tl.constexpr, D: tl.constexpr, R: tl.constexpr, BT: tl.constexpr, BR: tl.constexpr,
    BP: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    i_h = tl.program_id(1)
    o_t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    o_r = tl.arange(0, BR)[None, :]
    if i_h < H:
        m_t = o_t < Q
        i_t = o_t
        if p_rows is not None:
            i_t = tl.load(p_rows + o_t, mask=m_t, other=0)
        m_r = m_t[:, None] & (o_r < R)
        b_cos = tl.load(p_cos + i_t[:, None] * R + o_r, mask=m_r, other=0.0).to(tl.float32)
        b_sin = tl.load(p_sin + i_t[:, None] * R + o_r, mask=m_r, other=0.0).to(tl.float32)
        b_low, b_high, b_rest = _turn(
            p_q + o_t[:, None] * s_qt + i_h * s_qh, p_q_norm, b_cos, b_sin, m_t, eps, D, R, BR, BP
        )
        _store(p_q_out + (o_t[:, None] * H + i_h) * D, b_low, b_high, b_rest, m_t, D, R, BR, BP)
    else:
        i_h -= H
        m_t = o_t < T
        m_r = m_t[:, None] & (o_r < R)
        b_cos = tl.load(p_cos + o_t[:, None] * R + o_r, mask=m_r, other=0.0).to(tl.float32)
        b_sin = tl.load(p_sin + o_t[:, None] * R + o_r, mask=m_r, other=0.0).to(tl.float32)
        b_low, b_high, b_rest = _turn(
            p_k + o_t[:, None] * s_kt + i_h * s_kh, p_k_norm, b_cos, b_sin, m_t, eps, D, R, BR, BP
        )
        _store(p_k_out + (o_t[:, None] * HKV + i_h) * D, b_low, b_high, b_rest, m_t, D, R, BR, BP)
        place = tl.load(p_places + o_t, mask=m_t, other=-1)
        m_t = place >= 0
        o_page = (place[:, None] * HKV + i_h) * D
        _store(p_key_pages + o_page, b_low, b_high, b_rest, m_t, D, R, BR, BP)
        o_d = tl.arange(0, BD)[None, :]
        m_v = m_t[:, None] & (o_d < D)
        b_v = tl.load(p_v + o_t[:, None] * s_vt + i_h * s_vh + o_d, mask=m_v, other=0.0)
        tl.store(p_value_pages + o_page + o_d, b_v, mask=m_v)


@triton.jit
def _turn(
    p_x, p_norm, b_cos, b_sin, m_t, eps, D: tl.constexpr, R: tl.constexpr, BR: tl.constexpr,
    BP: tl.constexpr,
):  # fmt: skip
    # p_x [BT, 1] is where the rows' heads begin.
    o_r, o_p = tl.arange(0, BR)[None, :], 2 * R + tl.arange(0, BP)[None, :]
    m_r, m_p = m_t[:, None] & (o_r < R), m_t[:, None] & (o_p < D)
    b_low = tl.load(p_x + o_r, mask=m_r, other=0.0).to(tl.float32)
    b_high = tl.load(p_x + R + o_r, mask=m_r, other=0.0).to(tl.float32)
    b_rest = tl.load(p_x + o_p, mask=m_p, other=0.0).to(tl.float32)
    if p_norm is not None:
        b_square = tl.sum(b_low * b_low + b_high * b_high, 1) + tl.sum(b_rest * b_rest, 1)
        b_scale = tl.rsqrt(b_square / D + eps)[:, None]
        b_low *= b_scale * tl.load(p_norm + o_r, mask=o_r < R, other=0.0)
        b_high *= b_scale * tl.load(p_norm + R + o_r, mask=o_r < R, other=0.0)
        b_rest *= b_scale * tl.load(p_norm + o_p, mask=o_p < D, other=0.0)
    return b_low * b_cos - b_high * b_sin, b_high * b_cos + b_low * b_sin, b_rest


@triton.jit
def _store(
    p_x, b_low, b_high, b_rest, m_t, D: tl.constexpr, R: tl.constexpr, BR: tl.constexpr,
    BP: tl.constexpr,
):  # fmt: skip
    o_r, o_p = tl.arange(0, BR)[None, :], 2 * R + tl.arange(0, BP)[None, :]
    m_r = m_t[:, None] & (o_r < R)
    tl.store(p_x + o_r, b_low.to(p_x.dtype.element_ty), mask=m_r)
    tl.store(p_x + R + o_r, b_high.to(p_x.dtype.element_ty), mask=m_r)
    if D > 2 * R:
        m_p = m_t[:, None] & (o_p < D)
        tl.store(p_x + o_p, b_rest.to(p_x.dtype.element_ty), mask=m_p)
