"""Random checkpoints of odd sizes, written by transformers and read by the engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

from flide_engine.models import Decoder, load_model
from flide_engine.weights import WeightReader

if TYPE_CHECKING:
    from pathlib import Path

LLAMA: dict[str, dict[str, Any]] = {
    "tied": {
        "hidden_size": 36, "intermediate_size": 52, "num_hidden_layers": 3, "num_attention_heads":
        6, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": True, "rms_norm_eps":
        1e-5,
            },
            "rope_scaling": {
        "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads":
        4, "num_key_value_heads": 4, "tie_word_embeddings": False, "attention_bias": True,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
}  # fmt: skip

_ROPE = {
    "rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5,
    "mrope_section": [2, 1, 1], "mrope_interleaved": True,
}  # fmt: skip
_QWEN = {
    "hidden_size": 40, "intermediate_size": 56, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "linear_key_head_dim": 12, "linear_value_head_dim": 20, "linear_num_key_heads":
    2, "rope_parameters": _ROPE,
}  # fmt: skip
_FULL, _LINEAR = "full_attention", "linear_attention"
QWEN: dict[str, dict[str, Any]] = {
    "tied": _QWEN | {
        "num_hidden_layers": 4, "layer_types": [_LINEAR, _LINEAR, _FULL, _FULL],
        "linear_num_value_heads": 4, "linear_conv_kernel_dim": 4, "tie_word_embeddings": True,
    },
    "linear_last": _QWEN | {
        "num_hidden_layers": 3, "layer_types": [_LINEAR, _FULL, _LINEAR],
        "linear_num_value_heads": 2, "linear_conv_kernel_dim": 2, "tie_word_embeddings": False,
    },
}  # fmt: skip

VOCABULARY = 101


def random_model(family: str, variant: str, seed: int = 0) -> PreTrainedModel:
    """A float32 transformers model with weights large enough for answers to differ."""
    made: PreTrainedModel
    common = {"vocab_size": VOCABULARY, "max_position_embeddings": 1024}
    torch.manual_seed(seed)
    if family == "llama":
        made = LlamaForCausalLM(LlamaConfig(**LLAMA[variant], **common))
    else:
        made = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**QWEN[variant], **common))
    for name, parameter in made.named_parameters():
        with torch.no_grad():
            if name.endswith("A_log"):
                parameter.uniform_(-1.0, 1.5)
            elif name.endswith("dt_bias"):
                parameter.uniform_(-3.0, 0.0)
            elif parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.normal_(0, 0.15)
    made.tie_weights()
    return made.eval()


def save(model: PreTrainedModel, directory: Path, *, multimodal: bool = False) -> Path:
    """Write a checkpoint; `multimodal` writes a text model as the text part of a larger one."""
    model.save_pretrained(directory)
    if multimodal:
        from safetensors.torch import load_file, save_file

        path = directory / "model.safetensors"
        tensors = {
            name.replace("model.", "model.language_model.", 1): tensor
            for name, tensor in load_file(path).items()
        }
        save_file(tensors, path, metadata={"format": "pt"})
        text = json.loads((directory / "config.json").read_text())
        whole = {"model_type": "qwen3_5", "text_config": text, "tie_word_embeddings":
                 text["tie_word_embeddings"]}  # fmt: skip
        (directory / "config.json").write_text(json.dumps(whole))
    return directory


def load(directory: Path, dtype: torch.dtype, device: str = "cpu") -> Decoder:
    """The engine's model of a checkpoint."""
    config = json.loads((directory / "config.json").read_text())
    with WeightReader(directory, device=torch.device(device), dtype=dtype) as weights:
        return load_model(config, weights)
