"""The heart of a Gated DeltaNet layer in Triton: prepare chunks, walk trunks, read everything.

Only the walk is serial, and only in the states of trunks. A branch goes straight from the first to
the last: it is read by one program a head, which starts from its trunk's state by index and carries
it through the branch's own few chunks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl

from flide_engine.core import GRID
from flide_engine.kernels.gated_delta_net.convolve import convolve_kernel
from flide_engine.kernels.gated_delta_net.prepare import prepare_kernel
from flide_engine.kernels.gated_delta_net.reference import L2_EPS
from flide_engine.kernels.gated_delta_net.scan import read_kernel, walk_kernel

if TYPE_CHECKING:
    import torch

    from flide_engine.kernels.gated_delta_net.entry import Parameters
    from flide_engine.round import ConvSources, Segments

LEAST = 64
"""What small heads are filled up to: products of the sizes of large heads are enough."""

ROWS = 32
"""Of a program of the convolution."""

WALK_VALUES = 64
"""Rows of a state that a program walks; one product of a warp group has as many."""


class Config(NamedTuple):
    """How a kernel is built."""

    warps: int
    stages: int = 1

    def options(self) -> dict[str, int]:
        """As Triton calls them."""
        return {"num_warps": self.warps, "num_stages": self.stages}


# All by the bytes of an element.
PREPARE = {2: Config(4), 4: Config(4)}
WALK = {2: Config(4, stages=3), 4: Config(4)}
READ = {2: Config(8), 4: Config(8)}
PRECISION = {2: "tf32", 4: "tf32x3"}
# What triangular systems are solved in: float16 keeps as many bits as tf32, and they fit its range.
SOLVE = {2: tl.float16, 4: tl.float32}
# What decays are summed in: sums grow large where decays are strong, and their differences count.
SUM = {2: tl.float32, 4: tl.float64}


def gated_delta_net_triton(
    z: torch.Tensor,
    mixed: torch.Tensor,
    gates: torch.Tensor,
    parameters: Parameters,
    windows: torch.Tensor,
    states: torch.Tensor,
    sources: ConvSources,
    segments: Segments,
) -> torch.Tensor:
    """See `gated_delta_net`; products are in the dtype of z, sums and states in float32.

    Args:
        z, mixed, gates: as there; rows may lie apart.
        parameters, windows, states: as there, dense; no state is both read and left in one round.
        sources, segments: as there; only trunks leave states, and saves to state -1 are none.

    Returns:
        `[T, HV * V]`; rows of no segment are not written.
    """
    HV, K, V = parameters.value_heads, parameters.key_dim, parameters.value_dim
    (T, CH), size = mixed.shape, z.element_size()
    HK = (CH - HV * V) // (2 * K)
    C, S = len(segments.chunks), segments.slots
    B = len(segments.start) - S
    BK, BV = (max(LEAST, triton.next_power_of_2(n)) for n in (K, V))
    q, k, v, decay, beta = _convolve(mixed, gates, parameters, windows, sources, HK)
    kept, w, x, scores = (z.new_empty(C, HV, GRID, n) for n in (BK, BK, GRID, GRID))
    since, fade = states.new_empty(C, HV, GRID), states.new_empty(C, HV)
    where = (segments.start, segments.length)
    shape = {"HV": HV, "K": K, "BT": GRID, "BK": BK, "PRECISION": PRECISION[size]}
    prepare_kernel[(C, HV)](
        q, k, decay, beta, *where, segments.chunks, kept, w, x, scores, since, fade, **shape, HK=HK,
        SUM=SUM[size], SOLVE=SOLVE[size], **PREPARE[size].options(),
    )  # fmt: skip
    # Every scratch state has a branch that hangs there, and every branch has a chunk.
    scratch, h = states.new_empty(B, HV, K, V), z.new_empty(C - B, HV, BV, BK)
    walk_kernel[(S * HV, BV // WALK_VALUES)](
        v, kept, w, x, fade, states, scratch, h, *where, segments.state_in, segments.state_out,
        len(states), **shape, V=V, VV=BV, BV=WALK_VALUES, **WALK[size].options(),
    )  # fmt: skip
    carry, out = states.new_empty(T // GRID, HV, K, V), z.new_empty(T, HV * V)
    read_kernel[(C, HV)](
        q, v, kept, w, x, scores, since, fade, h, states, scratch, carry, z, parameters.norm, out,
        *where, segments.state_in, segments.chunks, S, z.stride(0), len(states), parameters.eps,
        **shape, V=V, HK=HK, BV=BV, **READ[size].options(),
    )  # fmt: skip
    return out


def _convolve(
    mixed: torch.Tensor,
    gates: torch.Tensor,
    parameters: Parameters,
    windows: torch.Tensor,
    sources: ConvSources,
    HK: int,
) -> tuple[torch.Tensor, ...]:
    """Queries and keys `[T, HK * K]`, values `[T, HV * V]`; decays, write strengths `[T, HV]`."""
    HV, K, V = parameters.value_heads, parameters.key_dim, parameters.value_dim
    (T, CH), W = mixed.shape, len(parameters.conv)
    q, k, v = (mixed.new_empty(T, heads) for heads in (HK * K, HK * K, HV * V))
    decay, beta = (parameters.log_decay.new_empty(T, HV) for _ in range(2))
    blocks = triton.cdiv(T, ROWS)
    convolve_kernel[(blocks * (2 * HK + HV) + len(sources.save_states),)](
        mixed, gates, parameters.conv, parameters.log_decay, parameters.dt_bias, windows,
        sources.source, sources.save_rows, sources.save_states, q, k, v, decay, beta,
        mixed.stride(0), gates.stride(0), sources.source.stride(0), T, blocks, CH=CH, HK=HK, HV=HV,
        K=K, V=V, W=W, BT=ROWS, BC=triton.next_power_of_2(max(K, V)), EPS=L2_EPS, num_warps=4,
    )  # fmt: skip
    return q, k, v, decay, beta
