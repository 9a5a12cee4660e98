"""Device memory of checkpoints: pages of keys and values, and slots of recurrent states.

Only tensors here; who owns which page or slot is the pool's business.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flide_engine.core import GRID


@dataclass(frozen=True, slots=True)
class Layout:
    """What a model keeps of a history.

    Attributes:
        attention_layers, kv_heads, head_dim: keys and values, `[GRID, kv_heads, head_dim]` a page.
        heads: query heads; they say how wide a tile of fork attention is.
        recurrent_layers: layers that fold the history into a matrix.
        value_heads, key_dim, value_dim: one state is `[value_heads, key_dim, value_dim]`.
        conv_channels, conv_width: one window is `[conv_width - 1, conv_channels]`.
    """

    attention_layers: int
    kv_heads: int
    head_dim: int
    heads: int
    recurrent_layers: int = 0
    value_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    conv_channels: int = 0
    conv_width: int = 1

    def page_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one page over all layers."""
        return 2 * self.attention_layers * GRID * self.kv_heads * self.head_dim * dtype.itemsize

    def state_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one checkpoint's states and windows over all recurrent layers."""
        state = self.value_heads * self.key_dim * self.value_dim * state_dtype(dtype).itemsize
        window = (self.conv_width - 1) * self.conv_channels * dtype.itemsize
        return self.recurrent_layers * (state + window)


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """Recurrent states, gates and the readout are never held in less than float32."""
    return torch.promote_types(dtype, torch.float32)


class Storage:
    """The tensors, one a layer.

    Attributes:
        keys, values: `[num_pages * GRID, kv_heads, head_dim]` for every attention layer.
        recurrent: `[num_states, value_heads, key_dim, value_dim]` for every recurrent layer.
        windows: `[num_states, conv_width - 1, conv_channels]` for every recurrent layer.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        num_pages: int,
        num_states: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.layout = layout
        self.num_pages = num_pages
        self.num_states = num_states
        self.dtype = dtype
        self.device = device
        kv = (num_pages * GRID, layout.kv_heads, layout.head_dim)
        state = (num_states, layout.value_heads, layout.key_dim, layout.value_dim)
        window = (num_states, layout.conv_width - 1, layout.conv_channels)
        # Not zeroed: what is not written is never read, and on a CPU costs no memory either.
        self.keys = self._tensors(layout.attention_layers, kv, dtype)
        self.values = self._tensors(layout.attention_layers, kv, dtype)
        self.recurrent = self._tensors(layout.recurrent_layers, state, state_dtype(dtype))
        self.windows = self._tensors(layout.recurrent_layers, window, dtype)

    def _tensors(
        self, count: int, shape: tuple[int, ...], dtype: torch.dtype
    ) -> list[torch.Tensor]:
        return [torch.empty(shape, dtype=dtype, device=self.device) for _ in range(count)]
