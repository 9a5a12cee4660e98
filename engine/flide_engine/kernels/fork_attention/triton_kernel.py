"""Fork attention in Triton: a program attends a tile's rows to one split; a second joins splits.

Letters: Q query rows, T stream rows, H query heads, HKV key heads, G = H / HKV, D head size; BM
rows times G, BN keys of a step. Scores are in powers of two.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from flide_engine.core import GRID
from flide_engine.kernels.common import sigmoid

if TYPE_CHECKING:
    from flide_engine.kernels.fork_attention.tiles import Tiles
    from flide_engine.round import Queries, Round


class Config(NamedTuple):
    """How a kernel is built."""

    rows: int  # BM
    keys: int  # BN
    warps: int
    stages: int


# (largest D, bytes of an element): tiles of many rows.
WIDE = {
    (64, 2): Config(128, 64, 4, 3),
    (128, 2): Config(128, 64, 8, 3),
    (256, 2): Config(128, 64, 8, 2),
    (64, 4): Config(64, 32, 4, 2),
    (128, 4): Config(64, 32, 4, 2),
    (256, 4): Config(32, 32, 4, 1),
}
# Tiles of fewer than 64 rows, as those of one query row.
NARROW = {2: Config(16, 64, 4, 2), 4: Config(16, 32, 4, 1)}
PRECISION = {2: "tf32", 4: "tf32x3"}


def tile_rows(groups: int, head_dim: int, dtype: torch.dtype) -> int:
    """Query rows of a tile where `groups` query heads share a key head."""
    rows = _wide(head_dim, dtype).rows // groups
    return min(GRID, 1 << max(rows, 1).bit_length() - 1)


def fork_attention_triton(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rnd: Round,
    queries: Queries,
    scale: float,
    tiles: Tiles,
    gate: torch.Tensor | None = None,
) -> torch.Tensor:
    """See `fork_attention`.

    Args:
        query, key, value, key_pages, value_pages, rnd, queries, scale: as there; the last dimension
            of each is dense.
        tiles: of `queries`, from `plan_tiles`.
        gate: `[Q, H, D]`; the output is multiplied by its sigmoid.

    Returns:
        `[Q, H, D]`; rows of no tile are not written.
    """
    (Q, H, D), HKV = query.shape, key.shape[1]
    G = H // HKV
    BM, BD = max(16, triton.next_power_of_2(tiles.rows * G)), max(16, triton.next_power_of_2(D))
    config = _wide(D, query.dtype) if BM >= 64 else NARROW[query.element_size()]
    out = query.new_empty(Q, H, D)
    partial = query.new_empty(tiles.num_partials, HKV, BM, D, dtype=torch.float32)
    lse = query.new_empty(tiles.num_partials, HKV, BM, dtype=torch.float32)
    gated = query if gate is None else gate
    shape = {
        "HKV": HKV, "G": G, "D": D, "BM": BM, "BD": BD, "GATED": gate is not None,
    }  # fmt: skip
    attend_kernel[(len(tiles.work) * HKV,)](
        query, key, value, key_pages, value_pages, rnd.page_table, tiles.work,
        queries.trunk_len, queries.branch_len, gated, out, partial, lse,
        *query.stride()[:2], *key.stride()[:2], *value.stride()[:2], *gated.stride()[:2],
        rnd.page_table.stride(0), scale * math.log2(math.e),
        **shape, BN=config.keys, PAGE=GRID, PRECISION=PRECISION[query.element_size()],
        num_warps=config.warps if BM > 64 else 4, num_stages=config.stages,
    )  # fmt: skip
    if len(tiles.joins):
        join_kernel[(len(tiles.joins) * HKV, BM // 16)](
            tiles.joins, partial, lse, gated, out, *gated.stride()[:2], **shape, BR=16, num_warps=4
        )
    return out


def _wide(head_dim: int, dtype: torch.dtype) -> Config:
    return next(config for (most, size), config in WIDE.items()
                if head_dim <= most and size == dtype.itemsize)  # fmt: skip


@triton.jit(do_not_specialize=["s_table"])
def attend_kernel(
    p_q, p_k, p_v, p_key_pages, p_value_pages, p_table, p_work, p_trunk_len, p_branch_len, p_gate,
    p_out, p_partial, p_lse, s_qt, s_qh, s_kt, s_kh, s_vt, s_vh, s_gt, s_gh, s_table, scale,
    HKV: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr,
    GATED: tl.constexpr, BN: tl.constexpr, PAGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    i_w, i_h = tl.program_id(0) // HKV, tl.program_id(0) % HKV
    p_work += i_w * 7
    i_q, n_q = tl.load(p_work), tl.load(p_work + 1).to(tl.int32)
    if i_q < 0:
        return
    slot = tl.load(p_work + 2)
    begin, end = tl.load(p_work + 3).to(tl.int32), tl.load(p_work + 4).to(tl.int32)
    own, partial = tl.load(p_work + 5), tl.load(p_work + 6)

    o_m, o_n, o_d = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BD)
    m_m, m_d = o_m < n_q * G, o_d < D
    # Rows past the tile's end do as its last row does, and are not stored.
    o_q = i_q + tl.minimum(o_m // G, n_q - 1)
    o_h = i_h * G + o_m % G
    b_q = tl.load(p_q + (o_q * s_qt + o_h * s_qh)[:, None] + o_d, mask=m_d[None, :], other=0.0)
    b_trunk_len = tl.load(p_trunk_len + o_q).to(tl.int32)
    b_acc = tl.zeros([BM, BD], tl.float32)
    b_max = tl.full([BM], float("-inf"), tl.float32)
    b_sum = tl.zeros([BM], tl.float32)

    # Keys that all rows see, then those that some see, then the segment's own.
    p_table += slot * s_table
    o_kv = o_n[:, None] * (HKV * D) + (i_h * D + o_d)[None, :]
    full = tl.maximum(tl.minimum(tl.min(b_trunk_len), end) // BN * BN, begin)
    for n in tl.range(begin, full, BN):
        place = (tl.load(p_table + n // PAGE) * PAGE + n % PAGE) * (HKV * D)
        b_k = tl.load(p_key_pages + place + o_kv, mask=m_d[None, :], other=0.0)
        b_v = tl.load(p_value_pages + place + o_kv, mask=m_d[None, :], other=0.0)
        b_acc, b_max, b_sum = _absorb(b_q, b_k, b_v, b_acc, b_max, b_sum, None, scale, PRECISION)
    for n in tl.range(full, end, BN, num_stages=1):
        place = (tl.load(p_table + n // PAGE) * PAGE + n % PAGE) * (HKV * D)
        # What lies past the last key may be anything, and 0 times anything may be NaN.
        m_kv = (n + o_n < end)[:, None] & m_d[None, :]
        b_k = tl.load(p_key_pages + place + o_kv, mask=m_kv, other=0.0)
        b_v = tl.load(p_value_pages + place + o_kv, mask=m_kv, other=0.0)
        b_seen = (n + o_n)[None, :] < b_trunk_len[:, None]
        b_acc, b_max, b_sum = _absorb(b_q, b_k, b_v, b_acc, b_max, b_sum, b_seen, scale, PRECISION)
    if own >= 0:
        b_own_len = tl.load(p_branch_len + o_q).to(tl.int32)
        own_end = tl.max(b_own_len)
        o_k, o_v = o_n[:, None] * s_kt + o_d[None, :], o_n[:, None] * s_vt + o_d[None, :]
        p_k += own * s_kt + i_h * s_kh
        p_v += own * s_vt + i_h * s_vh
        for n in tl.range(0, own_end, BN, num_stages=1):
            m_kv = (n + o_n < own_end)[:, None] & m_d[None, :]
            b_k = tl.load(p_k + n * s_kt + o_k, mask=m_kv, other=0.0)
            b_v = tl.load(p_v + n * s_vt + o_v, mask=m_kv, other=0.0)
            b_seen = (n + o_n)[None, :] < b_own_len[:, None]
            b_acc, b_max, b_sum = _absorb(
                b_q, b_k, b_v, b_acc, b_max, b_sum, b_seen, scale, PRECISION
            )

    b_acc *= (1.0 / b_sum)[:, None]
    m_out = m_m[:, None] & m_d[None, :]
    if partial < 0:
        if GATED:
            o_gate = (o_q * s_gt + o_h * s_gh)[:, None] + o_d
            b_acc *= sigmoid(tl.load(p_gate + o_gate, mask=m_out, other=0.0).to(tl.float32))
        o_out = (o_q * (HKV * G) + o_h)[:, None] * D + o_d
        tl.store(p_out + o_out, b_acc.to(p_out.dtype.element_ty), mask=m_out)
    else:
        o_part = (partial * HKV + i_h) * BM + o_m
        tl.store(p_partial + o_part[:, None] * D + o_d, b_acc, mask=m_out)
        tl.store(p_lse + o_part, b_max + tl.log2(b_sum), mask=m_m)


@triton.jit
def _absorb(b_q, b_k, b_v, b_acc, b_max, b_sum, b_seen, scale, PRECISION: tl.constexpr):
    b_s = tl.dot(b_q, tl.trans(b_k), input_precision=PRECISION)
    if b_seen is not None:
        b_s = tl.where(b_seen, b_s, float("-inf"))
    b_top = tl.maximum(b_max, tl.max(b_s, 1) * scale)
    b_fade = tl.exp2(b_max - b_top)
    b_p = tl.exp2(b_s * scale - b_top[:, None])
    b_sum = b_sum * b_fade + tl.sum(b_p, 1)
    b_acc = tl.dot(b_p.to(b_v.dtype), b_v, b_acc * b_fade[:, None], input_precision=PRECISION)
    return b_acc, b_top, b_sum


@triton.jit
def join_kernel(
    p_joins, p_partial, p_lse, p_gate, p_out, s_gt, s_gh, HKV: tl.constexpr, G: tl.constexpr,
    D: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr, GATED: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    i_j, i_h = tl.program_id(0) // HKV, tl.program_id(0) % HKV
    p_joins += i_j * 4
    i_q, n_q = tl.load(p_joins), tl.load(p_joins + 1).to(tl.int32)
    first, count = tl.load(p_joins + 2), tl.load(p_joins + 3).to(tl.int32)
    o_m = tl.program_id(1) * BR + tl.arange(0, BR)
    if (i_q < 0) | (tl.program_id(1) * BR >= n_q * G):
        return
    o_d = tl.arange(0, BD)
    m_m = o_m < n_q * G
    m_out = m_m[:, None] & (o_d < D)[None, :]
    o_part = (first * HKV + i_h) * BM + o_m
    b_top = tl.full([BR], float("-inf"), tl.float32)
    for i in range(count):
        b_top = tl.maximum(b_top, tl.load(p_lse + o_part + i * (HKV * BM), mask=m_m, other=0.0))
    b_sum = tl.zeros([BR], tl.float32)
    b_acc = tl.zeros([BR, BD], tl.float32)
    for _ in range(count):
        b_weight = tl.exp2(tl.load(p_lse + o_part, mask=m_m, other=0.0) - b_top)
        b_sum += b_weight
        b_part = tl.load(p_partial + o_part[:, None] * D + o_d, mask=m_out, other=0.0)
        b_acc += b_weight[:, None] * b_part
        o_part += HKV * BM
    b_acc *= (1.0 / b_sum)[:, None]
    o_q, o_h = i_q + o_m // G, i_h * G + o_m % G
    if GATED:
        o_gate = (o_q * s_gt + o_h * s_gh)[:, None] + o_d
        b_acc *= sigmoid(tl.load(p_gate + o_gate, mask=m_out, other=0.0).to(tl.float32))
    o_out = (o_q * (HKV * G) + o_h)[:, None] * D + o_d
    tl.store(p_out + o_out, b_acc.to(p_out.dtype.element_ty), mask=m_out)
