"""The gated activation in Triton. Letters: T rows, I their size, BT and BI of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from flide_engine.kernels.common import sigmoid

if TYPE_CHECKING:
    import torch

ROWS, COLUMNS, WARPS = 4, 1024, 4


def swiglu_triton(gate_up: torch.Tensor) -> torch.Tensor:
    """See `swiglu`; rows may lie apart."""
    T, I = gate_up.shape[0], gate_up.shape[1] // 2  # noqa: E741
    out = gate_up.new_empty(T, I)
    swiglu_kernel[(triton.cdiv(T, ROWS), triton.cdiv(I, COLUMNS))](
        gate_up, out, gate_up.stride(0), T, I=I, BT=ROWS, BI=COLUMNS, num_warps=WARPS,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["T"])
def swiglu_kernel(
    p_x, p_out, s_xt, T, I: tl.constexpr, BT: tl.constexpr, BI: tl.constexpr,  # noqa: E741
):  # fmt: skip
    o_t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    o_i = tl.program_id(1) * BI + tl.arange(0, BI)
    m = (o_t < T)[:, None] & (o_i < I)[None, :]
    p_x += o_t[:, None] * s_xt + o_i
    b_gate = tl.load(p_x, mask=m, other=0.0).to(tl.float32)
    b_up = tl.load(p_x + I, mask=m, other=0.0).to(tl.float32)
    b_out = b_gate * sigmoid(b_gate) * b_up
    tl.store(p_out + o_t[:, None] * I + o_i, b_out.to(p_out.dtype.element_ty), mask=m)
