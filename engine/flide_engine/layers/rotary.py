"""Rotary positions: frequencies from the model's config, and their use on queries and keys."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from flide_engine.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping


def inverse_frequencies(rope: Mapping[str, Any], rotary_dim: int) -> torch.Tensor:
    """`[rotary_dim / 2]` in float64, from a config's `rope_parameters`.

    Supports the plain kind, linear scaling and Llama 3's, where long wavelengths are slowed by
    `factor`, short ones are kept and those between are blended (Llama 3.1 model card and config).

    Raises:
        ModelLoadError: for any other kind.
    """
    kind = rope.get("rope_type", "default")
    exponent = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
    inverse = 1.0 / torch.pow(float(rope["rope_theta"]), exponent)
    if kind == "default":
        return inverse
    if kind == "linear":
        return inverse / float(rope["factor"])
    if kind == "llama3":
        return _llama3(inverse, rope)
    raise ModelLoadError(
        f"rope_type {kind!r} is not supported; models with 'default', 'linear' or 'llama3' are."
    )


def _llama3(inverse: torch.Tensor, rope: Mapping[str, Any]) -> torch.Tensor:
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    turns = float(rope["original_max_position_embeddings"]) * inverse / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return torch.lerp(inverse / float(rope["factor"]), inverse, keep)


class Rotary:
    """Cosines and sines of a round's positions.

    Angles are taken in float64 and rounded once, so that position 100,000 is as exact as position
    1.
    """

    def __init__(self, inverse: torch.Tensor, dtype: torch.dtype, device: torch.device) -> None:
        self.inverse = inverse.to(device)
        self.dtype = dtype

    def __call__(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`[T]` to two `[T, 1, rotary_dim / 2]`."""
        angle = (positions.to(torch.float64)[:, None] * self.inverse).unsqueeze(1)
        return angle.cos().to(self.dtype), angle.sin().to(self.dtype)
