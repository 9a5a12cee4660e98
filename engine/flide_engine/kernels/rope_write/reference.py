"""Norms, rotary positions and page writes in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F

if TYPE_CHECKING:
    import torch


def rope_write_reference(
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
    """See `rope_write`."""
    cos, sin = rotation
    key = _turn(_norm(key, k_norm, eps), cos, sin)
    num_trunk_rows = int((slot_mapping >= 0).sum())
    places = slot_mapping[:num_trunk_rows]
    key_pages[places] = key[:num_trunk_rows]
    value_pages[places] = value[:num_trunk_rows]
    if rows is not None:
        cos, sin = cos[rows], sin[rows]
    return _turn(_norm(query, q_norm, eps), cos, sin), key


def _norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    if weight is None:
        return x
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)


def _turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn the leading part of `x` `[n, heads, D]` in place."""
    half = cos.shape[-1]
    low, high = x[..., :half], x[..., half : 2 * half]
    turned = low * cos - high * sin
    high.mul_(cos).addcmul_(low, sin)
    low.copy_(turned)
    return x
