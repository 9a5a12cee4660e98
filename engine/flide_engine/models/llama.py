"""Family `llama`: SmolLM2, Llama 2 and 3, and their kin. Weight names as in transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flide_engine.layers.attention import Attention
from flide_engine.layers.mlp import SwiGLU
from flide_engine.layers.rotary import Rotary, inverse_frequencies
from flide_engine.models.config import require, rope_parameters
from flide_engine.models.decoder import Decoder, Layer
from flide_engine.storage import Layout, state_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from flide_engine.weights import WeightReader


def load_llama(config: Mapping[str, Any], weights: WeightReader) -> Decoder:
    """Build the model from its config and weights.

    Raises:
        ModelLoadError: where either does not fit.
    """
    hidden = require(config, "hidden_size", int)
    heads = require(config, "num_attention_heads", int)
    head_dim = config.get("head_dim") or hidden // heads
    vocabulary = require(config, "vocab_size", int)
    embedding = weights.take("model.embed_tokens.weight", (vocabulary, hidden))
    tied = config.get("tie_word_embeddings", False)
    inverse = inverse_frequencies(rope_parameters(config), head_dim)
    return Decoder(
        embedding=embedding,
        layers=tuple(
            _layer(index, config, head_dim, weights)
            for index in range(require(config, "num_hidden_layers", int))
        ),
        norm=weights.take("model.norm.weight", (hidden,), state_dtype(weights.dtype)),
        head=embedding if tied else weights.take("lm_head.weight", (vocabulary, hidden)),
        rotary=Rotary(inverse, weights.dtype, weights.device),
        eps=require(config, "rms_norm_eps", float),
        layout=Layout(
            attention_layers=require(config, "num_hidden_layers", int),
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=head_dim,
            heads=heads,
        ),
        max_positions=require(config, "max_position_embeddings", int),
    )


def _layer(index: int, config: Mapping[str, Any], head_dim: int, weights: WeightReader) -> Layer:
    hidden = config["hidden_size"]
    intermediate = require(config, "intermediate_size", int)
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    name = f"model.layers.{index}"
    wide = state_dtype(weights.dtype)
    kv_shape, mlp_shape = (kv_heads * head_dim, hidden), (intermediate, hidden)

    def bias(used: bool, *names: str) -> torch.Tensor | None:
        rows = {"q_proj": heads * head_dim, "o_proj": hidden}
        shapes = [(rows.get(part, kv_heads * head_dim),) for part in names]
        full = [f"{name}.self_attn.{part}.bias" for part in names]
        return weights.take_stacked(full, shapes) if used else None

    biased = config.get("attention_bias", False)
    return Layer(
        mixer_norm=weights.take(f"{name}.input_layernorm.weight", (hidden,), wide),
        mixer=Attention(
            index=index,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            qkv=weights.take_stacked(
                [f"{name}.self_attn.{part}_proj.weight" for part in "qkv"],
                [(heads * head_dim, hidden), kv_shape, kv_shape],
            ),
            out=weights.take(f"{name}.self_attn.o_proj.weight", (hidden, heads * head_dim)),
            qkv_bias=bias(biased, "q_proj", "k_proj", "v_proj"),
            out_bias=bias(biased, "o_proj"),
        ),
        mlp_norm=weights.take(f"{name}.post_attention_layernorm.weight", (hidden,), wide),
        mlp=SwiGLU(
            gate_up=weights.take_stacked(
                [f"{name}.mlp.{part}_proj.weight" for part in ("gate", "up")], [mlp_shape] * 2
            ),
            down=weights.take(f"{name}.mlp.down_proj.weight", (hidden, intermediate)),
        ),
    )
