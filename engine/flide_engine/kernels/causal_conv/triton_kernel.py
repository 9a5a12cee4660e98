"""The convolution in Triton: rows before a row by index, and the windows to save, in one launch.

Letters: T rows, CH channels, W width; BT rows and BC channels of a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

    from flide_engine.round import ConvSources

ROWS, CHANNELS, WARPS = 32, 128, 4


def causal_conv_triton(
    inputs: torch.Tensor, weight: torch.Tensor, windows: torch.Tensor, sources: ConvSources
) -> torch.Tensor:
    """See `causal_conv_reference`; sums are in float32.

    Args:
        inputs: `[T, CH]`, rows may lie apart.
        weight: `[CH, W]`, dense.
        windows: `[num_states, W - 1, CH]`, dense. No state is both read and saved in one round.
        sources: as there; saves to state -1 are none.

    Returns:
        `[T, CH]`, dense.
    """
    (T, CH), W = inputs.shape, weight.shape[1]
    out = inputs.new_empty(T, CH)
    blocks = triton.cdiv(T, ROWS)
    conv_kernel[(blocks + len(sources.save_states), triton.cdiv(CH, CHANNELS))](
        inputs, weight, windows, *source_arrays(sources), out, inputs.stride(0), T, blocks,
        CH=CH, W=W, BT=ROWS, BC=CHANNELS, num_warps=WARPS,
    )  # fmt: skip
    return out


def source_arrays(sources: ConvSources) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """What kernels take of the sources, and how far apart the rows of the first lie."""
    return sources.source, sources.save_rows, sources.save_states, sources.source.stride(0)


@triton.jit(do_not_specialize=["s_source", "T", "blocks"])
def conv_kernel(
    p_x, p_weight, p_windows, p_source, p_save_rows, p_save_states, s_source, p_out, s_xt, T,
    blocks, CH: tl.constexpr, W: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    i_t = tl.program_id(0)
    o_c = tl.program_id(1) * BC + tl.arange(0, BC)
    m_c = o_c < CH
    if i_t >= blocks:
        save_window(i_t - blocks, p_x, p_windows, p_save_rows, p_save_states, s_xt, o_c, m_c, CH, W)
    else:
        o_t = i_t.to(tl.int64) * BT + tl.arange(0, BT)
        b_y = convolve(
            p_x, p_weight, p_windows, p_source, s_source, s_xt, o_t, o_t < T, o_c, m_c, CH, W
        )
        m_y = (o_t < T)[:, None] & m_c[None, :]
        tl.store(p_out + o_t[:, None] * CH + o_c, b_y.to(p_out.dtype.element_ty), mask=m_y)


@triton.jit
def convolve(
    p_x, p_weight, p_windows, p_source, s_source, s_xt, o_t, m_t, o_c, m_c, CH: tl.constexpr,
    W: tl.constexpr,
):  # fmt: skip
    # SiLU of the convolution of rows o_t and channels o_c, in float32.
    p_weight += o_c * W
    b_x = tl.load(p_x + o_t[:, None] * s_xt + o_c, mask=m_t[:, None] & m_c[None, :], other=0.0)
    b_weight = tl.load(p_weight + (W - 1), mask=m_c, other=0.0)
    b_y = b_x.to(tl.float32) * b_weight.to(tl.float32)[None, :]
    for back in tl.static_range(1, W):
        source = tl.load(p_source + (back - 1) * s_source + o_t, mask=m_t, other=-1)
        m_x = (source >= 0)[:, None] & m_c[None, :]
        b_x = tl.load(p_x + source[:, None] * s_xt + o_c, mask=m_x, other=0.0).to(tl.float32)
        if tl.min(source) < -1:
            m_x = (source < -1)[:, None] & m_c[None, :]
            o_x = (-2 - source)[:, None] * CH + o_c
            b_x += tl.load(p_windows + o_x, mask=m_x, other=0.0).to(tl.float32)
        b_weight = tl.load(p_weight + (W - 1 - back), mask=m_c, other=0.0)
        b_y += b_x * b_weight.to(tl.float32)[None, :]
    return b_y * tl.sigmoid(b_y)


@triton.jit
def save_window(
    i_n, p_x, p_windows, p_save_rows, p_save_states, s_xt, o_c, m_c, CH: tl.constexpr,
    W: tl.constexpr,
):  # fmt: skip
    state = tl.load(p_save_states + i_n)
    if state >= 0:
        for place in tl.static_range(0, W - 1):
            row = tl.load(p_save_rows + i_n * (W - 1) + place)
            b_x = tl.load(p_x + row * s_xt + o_c, mask=m_c, other=0.0)
            tl.store(p_windows + (state * (W - 1) + place) * CH + o_c, b_x, mask=m_c)
