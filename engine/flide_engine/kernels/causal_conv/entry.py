"""The door to the convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.kernels.causal_conv.reference import causal_conv_reference

if TYPE_CHECKING:
    import torch

    from flide_engine.round import ConvSources


def causal_conv(
    inputs: torch.Tensor, weight: torch.Tensor, windows: torch.Tensor, sources: ConvSources
) -> torch.Tensor:
    """Depthwise causal convolution of width W, then SiLU; saves the round's windows on the way.

    Args:
        inputs: `[T, channels]`.
        weight: `[channels, W]`, the last column for the row itself.
        windows: `[num_states, W - 1, channels]` saved inputs, oldest first; `sources.save_states`
            are written.
        sources: which rows or saved inputs come before each row.

    Returns:
        `[T, channels]`.
    """
    return causal_conv_reference(inputs, weight, windows, sources)
