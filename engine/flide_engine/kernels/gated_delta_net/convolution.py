"""The short causal convolution of a Gated DeltaNet layer in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flide_engine.round import ZERO

if TYPE_CHECKING:
    from flide_engine.round import ConvSources


def causal_conv(
    inputs: torch.Tensor, weight: torch.Tensor, windows: torch.Tensor, sources: ConvSources
) -> torch.Tensor:
    """Depthwise causal convolution of width W, then SiLU; saves the round's windows on the way.

    Nearly every row's predecessors are the rows before it, so the bulk is shifted sums; the first
    rows of every segment are then done again from their indices.

    Args:
        inputs: `[T, channels]`.
        weight: `[W, channels]`, the last for the row itself.
        windows: `[num_states, W - 1, channels]` saved inputs, oldest first; `sources.save_states`
            are written.
        sources: which rows or saved inputs come before each row.

    Returns:
        `[T, channels]`.
    """
    width = len(weight)
    out = inputs * weight[-1]
    for back in range(1, width):
        out[back:].addcmul_(inputs[:-back], weight[width - 1 - back])
    edges = sources.edge_rows
    edge_out = inputs[edges] * weight[-1]
    for back in range(1, width):
        source = sources.source[back - 1, edges]
        before = inputs[source.clamp(min=0)]
        saved = source < ZERO
        before[saved] = windows.flatten(0, 1)[-2 - source[saved]]
        before[source == ZERO] = 0
        edge_out.addcmul_(before, weight[width - 1 - back])
    out[edges] = edge_out
    windows[sources.save_states] = inputs[sources.save_rows]
    return torch.nn.functional.silu(out, inplace=True)
