"""The two models that are measured: the embedded SmolLM2 and a random hybrid."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel, Qwen3_5ForCausalLM, Qwen3_5TextConfig

from benchmarks.timing import console
from flide_engine import Engine, smollm2
from flide_engine.hub import load_tokenizer, read_config
from flide_engine.models import load_model
from flide_engine.weights import WeightReader

if TYPE_CHECKING:
    from benchmarks.timing import Answers
    from flide_engine import Request

# Part of the directory's name: raise it when the weights are made otherwise.
_RECIPE = 1

_SHAPE = {
    "vocab_size": 248_320,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 262_144,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
}

_POOL_BYTES = 512 * 1024**2


def embedded() -> Engine:
    """The engine with SmolLM2, in float32."""
    console.print("loading SmolLM2")
    return Engine.from_pretrained(smollm2.NAME)


def hybrid() -> Engine:
    """The engine with a random model of the Qwen3.5 0.8B shape, in float32.

    Its text becomes tokens as SmolLM2's does: a random model reads any.
    """
    directory = hybrid_directory()
    console.print("loading the random hybrid")
    with WeightReader(directory, device=torch.device("cpu"), dtype=torch.float32) as weights:
        decoder = load_model(read_config(directory), weights)
    return Engine(
        decoder,
        load_tokenizer(smollm2.prepare()),
        model_name=directory.name,
        pool_bytes=_POOL_BYTES,
    )


def hybrid_directory() -> Path:
    """The random hybrid's checkpoint in bfloat16, written on first use."""
    target = smollm2.directory().parent / f"benchmark-qwen3_5-0.8b-{_RECIPE}"
    if not target.is_dir():
        console.print(f"writing a random hybrid to {target} (once; 1.5 GB)")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=target.parent) as scratch:
            draft = Path(scratch) / "model"
            _random_hybrid().save_pretrained(draft)
            draft.rename(target)
    return target


def answers(engine: Engine, request: Request) -> Answers:
    """What the engine says, from tokens to probabilities."""
    return engine.run([request])[0].probabilities


def _random_hybrid() -> PreTrainedModel:
    """Weights of the sizes a trained model has, so that no gate is shut and answers differ."""
    torch.manual_seed(0)
    model: PreTrainedModel = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**_SHAPE))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.uniform_(-3, 1)
            elif name.endswith("dt_bias"):
                parameter.uniform_(-3, 0)
            elif name.endswith("embed_tokens.weight"):
                parameter.normal_(0, 0.06)
    return model.to(torch.bfloat16)
