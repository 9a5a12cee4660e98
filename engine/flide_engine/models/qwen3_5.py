"""Family `qwen3_5`: dense hybrids of gated attention and Gated DeltaNet. Names as in transformers.

Reads text checkpoints and the text part of multimodal ones. The norms of this family store their
weight less one, except the gated norm of the recurrent layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flide_engine.errors import ModelLoadError
from flide_engine.kernels.gated_delta_net import Parameters
from flide_engine.layers.attention import Attention
from flide_engine.layers.gated_delta_net import GatedDeltaNet
from flide_engine.layers.mlp import SwiGLU
from flide_engine.layers.rotary import Rotary, inverse_frequencies
from flide_engine.models.config import require, rope_parameters
from flide_engine.models.decoder import Decoder, Layer
from flide_engine.storage import Layout, state_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from flide_engine.weights import WeightReader


def load_qwen3_5(config: Mapping[str, Any], weights: WeightReader) -> Decoder:
    """Build the model from its config and weights.

    Raises:
        ModelLoadError: where either does not fit.
    """
    text = config.get("text_config", config)
    prefix = "model.language_model" if "text_config" in config else "model"
    hidden = require(text, "hidden_size", int)
    vocabulary = require(text, "vocab_size", int)
    builder = _Builder(text, weights, prefix)
    embedding = weights.take(f"{prefix}.embed_tokens.weight", (vocabulary, hidden))
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
    rope = rope_parameters(text)
    rotary_dim = int(builder.head_dim * rope.get("partial_rotary_factor", 1.0))
    return Decoder(
        embedding=embedding,
        layers=builder.layers(),
        norm=builder.norm("norm", hidden),
        head=embedding if tied else weights.take("lm_head.weight", (vocabulary, hidden)),
        rotary=Rotary(inverse_frequencies(rope, rotary_dim), weights.dtype, weights.device),
        eps=builder.eps,
        layout=builder.layout(),
        max_positions=require(text, "max_position_embeddings", int),
    )


class _Builder:
    """Shapes of one model, and its layers from their weights."""

    def __init__(self, config: Mapping[str, Any], weights: WeightReader, prefix: str) -> None:
        self.weights = weights
        self.prefix = prefix
        self.wide = state_dtype(weights.dtype)
        self.hidden = require(config, "hidden_size", int)
        self.intermediate = require(config, "intermediate_size", int)
        self.heads = require(config, "num_attention_heads", int)
        self.kv_heads = require(config, "num_key_value_heads", int)
        self.head_dim = int(config.get("head_dim") or self.hidden // self.heads)
        self.key_heads = require(config, "linear_num_key_heads", int)
        self.value_heads = require(config, "linear_num_value_heads", int)
        self.key_dim = require(config, "linear_key_head_dim", int)
        self.value_dim = require(config, "linear_value_head_dim", int)
        self.conv_width = require(config, "linear_conv_kernel_dim", int)
        self.eps = require(config, "rms_norm_eps", float)
        self.biased = bool(config.get("attention_bias", False))
        self.kinds = _layer_types(config)

    @property
    def channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def layout(self) -> Layout:
        return Layout(
            attention_layers=self.kinds.count("full_attention"),
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            heads=self.heads,
            recurrent_layers=self.kinds.count("linear_attention"),
            value_heads=self.value_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            conv_channels=self.channels,
            conv_width=self.conv_width,
        )

    def layers(self) -> tuple[Layer, ...]:
        made: dict[str, Callable[[str, int], Attention | GatedDeltaNet]] = {
            "full_attention": self._attention,
            "linear_attention": self._delta_net,
        }
        return tuple(
            Layer(
                mixer_norm=self.norm(f"layers.{index}.input_layernorm", self.hidden),
                mixer=made[kind](f"layers.{index}", self.kinds[:index].count(kind)),
                mlp_norm=self.norm(f"layers.{index}.post_attention_layernorm", self.hidden),
                mlp=SwiGLU(
                    gate_up=self.stacked(
                        [f"layers.{index}.mlp.{part}_proj.weight" for part in ("gate", "up")],
                        [(self.intermediate, self.hidden)] * 2,
                    ),
                    down=self.take(
                        f"layers.{index}.mlp.down_proj.weight", self.hidden, self.intermediate
                    ),
                ),
            )
            for index, kind in enumerate(self.kinds)
        )

    def _attention(self, layer: str, index: int) -> Attention:
        name = f"{layer}.self_attn"
        rows = {
            "q": 2 * self.heads * self.head_dim,
            "k": self.kv_heads * self.head_dim,
            "v": self.kv_heads * self.head_dim,
            "o": self.hidden,
        }

        def bias(parts: str) -> torch.Tensor | None:
            names = [f"{name}.{part}_proj.bias" for part in parts]
            return self.stacked(names, [(rows[part],) for part in parts]) if self.biased else None

        return Attention(
            index=index,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            qkv=self.stacked(
                [f"{name}.{part}_proj.weight" for part in "qkv"],
                [(rows[part], self.hidden) for part in "qkv"],
            ),
            out=self.take(f"{name}.o_proj.weight", self.hidden, self.heads * self.head_dim),
            qkv_bias=bias("qkv"),
            out_bias=bias("o"),
            q_norm=self.norm(f"{name}.q_norm", self.head_dim),
            k_norm=self.norm(f"{name}.k_norm", self.head_dim),
            eps=self.eps,
            gated=True,
        )

    def _delta_net(self, layer: str, index: int) -> GatedDeltaNet:
        name = f"{layer}.linear_attn"
        values = self.value_heads * self.value_dim
        conv = self.take(f"{name}.conv1d.weight", self.channels, 1, self.conv_width)
        return GatedDeltaNet(
            index=index,
            inputs=self.stacked(
                [f"{name}.in_proj_{part}.weight" for part in ("z", "qkv", "b", "a")],
                [
                    (rows, self.hidden)
                    for rows in (values, self.channels, self.value_heads, self.value_heads)
                ],
            ),
            parameters=Parameters(
                value_heads=self.value_heads,
                key_dim=self.key_dim,
                value_dim=self.value_dim,
                conv=conv.squeeze(1).T.contiguous(),
                log_decay=self.take(f"{name}.A_log", self.value_heads, dtype=self.wide),
                dt_bias=self.take(f"{name}.dt_bias", self.value_heads, dtype=self.wide),
                norm=self.take(f"{name}.norm.weight", self.value_dim, dtype=self.wide),
                eps=self.eps,
            ),
            out=self.take(f"{name}.out_proj.weight", self.hidden, values),
        )

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return self.weights.take(f"{self.prefix}.{name}", shape, dtype)

    def stacked(self, names: list[str], shapes: list[tuple[int, ...]]) -> torch.Tensor:
        return self.weights.take_stacked([f"{self.prefix}.{name}" for name in names], shapes)

    def norm(self, name: str, size: int) -> torch.Tensor:
        return self.take(f"{name}.weight", size, dtype=self.wide).add_(1)


def _layer_types(config: Mapping[str, Any]) -> list[str]:
    """The kind of every layer; unless the config lists them, every fourth is attention."""
    count = require(config, "num_hidden_layers", int)
    interval = int(config.get("full_attention_interval") or 4)
    kinds: list[str] = config.get("layer_types") or [
        "linear_attention" if (index + 1) % interval else "full_attention" for index in range(count)
    ]
    known = {"full_attention", "linear_attention"}
    if len(kinds) != count or not known.issuperset(kinds):
        raise ModelLoadError(
            f"config.json gives layer_types {kinds!r}, but they must be {count} of {sorted(known)}."
        )
    return kinds
