"""The one body: a stack of layers over a round, whatever the family or where its trunks start."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from flide_engine.kernels.fused_norm import add_rms_norm, rms_norm
from flide_engine.kernels.label_readout import label_readout
from flide_engine.layers.attention import Attention
from flide_engine.storage import state_dtype

if TYPE_CHECKING:
    from flide_engine.layers.gated_delta_net import GatedDeltaNet
    from flide_engine.layers.mlp import SwiGLU
    from flide_engine.layers.rotary import Rotary
    from flide_engine.round import Round
    from flide_engine.storage import Layout, Storage


@dataclass(frozen=True, slots=True)
class Layer:
    """Norm, mixer, norm, feed-forward, each around a residual."""

    mixer_norm: torch.Tensor
    mixer: Attention | GatedDeltaNet
    mlp_norm: torch.Tensor
    mlp: SwiGLU


@dataclass(frozen=True)
class Decoder:
    """A causal language model of which only the label rows of its head are ever used.

    Attributes:
        embedding: `[vocabulary, hidden]`.
        layers: first to last.
        norm: `[hidden]`, before the head.
        head: `[vocabulary, hidden]`; the embedding itself where they are tied.
        rotary: positions.
        eps: of the norms.
        layout: what it keeps of a history.
        max_positions: the longest prompt it was made for.
    """

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: torch.Tensor
    rotary: Rotary
    eps: float
    layout: Layout
    max_positions: int

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and products."""
        return self.embedding.dtype

    def cost(self, start: int, end: int) -> float:
        """Multiplications to compute the tokens of a history from `start` to `end`, per element."""
        products, keys = self._per_token
        return (end - start) * products + keys * (end**2 - start**2) / 2

    @cached_property
    def _per_token(self) -> tuple[int, int]:
        """Multiplications of a token, and those with every key before it."""
        mixers = [layer.mixer for layer in self.layers if isinstance(layer.mixer, Attention)]
        products = sum(_parameters(layer) for layer in self.layers)
        return products, sum(2 * mixer.heads * mixer.head_dim for mixer in mixers)

    @torch.inference_mode()
    def __call__(self, rnd: Round, storage: Storage) -> torch.Tensor:
        """Run a round; write its pages, states and windows; read its labels.

        In the last layer keys, values and states cover every row and the rest only the read ones
        (paper, section 3.3.3).

        Args:
            rnd: the round.
            storage: where its trunks' pages and states lie.

        Returns:
            `[L]` log-probabilities of the round's labels, in at least float32.
        """
        hidden = F.embedding(rnd.token_ids, self.embedding)
        rotation = self.rotary(rnd.positions)
        following = [*(layer.mixer_norm for layer in self.layers[1:]), self.norm]
        normed = rms_norm(hidden, self.layers[0].mixer_norm, self.eps)
        for layer, norm in zip(self.layers, following, strict=True):
            last = norm is self.norm
            queries = rnd.read if last else rnd.every
            mixed = layer.mixer(normed, rnd, queries, storage, rotation)
            hidden, normed = add_rms_norm(mixed, hidden, layer.mlp_norm, self.eps, queries.rows)
            # Each norm is taken with the sum before it: the next layer's, at last the head's.
            dtype = state_dtype(self.dtype) if last else None
            hidden, normed = add_rms_norm(layer.mlp(normed), hidden, norm, self.eps, dtype=dtype)
        return label_readout(normed, self.head, rnd.labels)


def _parameters(part: object) -> int:
    """How many numbers the tensors of a layer hold."""
    if isinstance(part, torch.Tensor):
        return part.numel()
    if not is_dataclass(part):
        return 0
    return sum(_parameters(getattr(part, field.name)) for field in fields(part))
