"""The gated delta rule in Triton: prepare all chunks of trunks, walk their states, read everything.

Only the walk is serial, and only in the states of trunks. A branch goes straight from the first to
the last: it is read by one program a head and block of values, which starts from its trunk's state
by index and carries it through the branch's own few chunks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl

from flide_engine.core import GRID
from flide_engine.kernels.gated_delta_rule.chunks import (
    prepare_kernel,
    read_kernel,
    walk_kernel,
)

if TYPE_CHECKING:
    import torch

    from flide_engine.round import Segments


class Config(NamedTuple):
    """How a kernel is built."""

    values: int  # BV, at most
    warps: int
    stages: int


# By the bytes of an element. Four warps: more would repeat each other in products of 64 rows.
PREPARE = {2: Config(128, 4, 1), 4: Config(64, 4, 1)}
WALK = {2: Config(32, 4, 3), 4: Config(32, 4, 1)}
READ = {2: Config(64, 4, 1), 4: Config(32, 4, 1)}
PRECISION = {2: "tf32", 4: "tf32x3"}
# What triangular systems are solved in: float16 keeps as many bits as tf32, and they fit its range.
SOLVE = {2: tl.float16, 4: tl.float32}


def gated_delta_rule_triton(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    segments: Segments,
) -> torch.Tensor:
    """See `gated_delta_rule`; products are in the dtype of `value`, sums and states in float32.

    Args:
        query, key: `[T, HK, K]`, rows may lie apart.
        value: `[T, HV, V]`, rows may lie apart.
        decay, beta: `[T, HV]` in float32, dense.
        states: `[num_states, HV, K, V]` in float32, dense.
        segments: only trunks leave states.

    Returns:
        `[T, HV, V]`; rows of no segment are not written.
    """
    (T, HK, K), (HV, V) = key.shape, value.shape[1:]
    C, S, size = len(segments.chunks), segments.slots, value.element_size()
    # Every scratch state has a branch that hangs there.
    scratch = states.new_empty(len(segments.start) - S, HV, K, V)
    w, u = value.new_empty(T, HV, K), value.new_empty(T, HV, V)
    inverse = value.new_empty(C, HV, GRID, GRID)
    sums = decay.new_empty(T, HV)
    h = value.new_empty(C, HV, K, V)
    out = value.new_empty(T, HV, V)
    where = (segments.start, segments.length)
    shape = {
        "HK": HK, "HV": HV, "K": K, "V": V, "BT": GRID, "BK": max(16, triton.next_power_of_2(K)),
        "PRECISION": PRECISION[size],
    }  # fmt: skip

    def built(config: Config) -> dict[str, int]:
        block = min(config.values, max(16, triton.next_power_of_2(V)))
        return {"BV": block, "num_warps": config.warps, "num_stages": config.stages}

    prepare_kernel[(C, HV)](
        key, value, decay, beta, *where, segments.chunks, S, w, u, inverse, sums,
        key.stride(0), value.stride(0), **shape, **built(PREPARE[size]), ST=SOLVE[size],
        LOG2_E=math.log2(math.e),
    )  # fmt: skip
    walked = built(WALK[size])
    walk_kernel[(S * HV, triton.cdiv(V, walked["BV"]))](
        key, w, u, sums, states, scratch, h, *where, segments.state_in, segments.state_out,
        key.stride(0), len(states), **shape, **walked, BS=64,
    )  # fmt: skip
    read = built(READ[size])
    read_kernel[(C, HV, triton.cdiv(V, read["BV"]))](
        query, key, value, sums, beta, inverse, h, states, scratch, out, *where,
        segments.state_in, segments.chunks, S, query.stride(0), key.stride(0), value.stride(0),
        len(states), **shape, **read,
    )  # fmt: skip
    return out
