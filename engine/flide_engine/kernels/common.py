"""What kernels share."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    # A reciprocal from its root: two instructions, where a division takes eight.
    root = tl.rsqrt(1.0 + tl.exp2(x * -1.4426950408889634))
    return root * root
