"""Small random models that can be talked to: a checkpoint with a tokenizer and a chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.support.models import random_model, save

if TYPE_CHECKING:
    from pathlib import Path

_CONTROLS = ("<|im_start|>", "<|im_end|>")
_MERGES = [("y", "e"), ("ye", "s"), ("n", "o")]
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, besides yes and no."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, _MERGES)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocabulary, _MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in _CONTROLS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=_TEMPLATE, eos_token=_CONTROLS[1]
    )


def chat_model(directory: Path, family: str, variant: str) -> Path:
    """Write a random model with the vocabulary of `byte_tokenizer`, and the tokenizer beside it."""
    tokenizer = byte_tokenizer()
    model = random_model(family, variant)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    for embedding in (model.get_input_embeddings(), model.get_output_embeddings()):
        torch.nn.init.normal_(embedding.weight, 0, 0.15)
    model.config.max_position_embeddings = 8192
    tokenizer.save_pretrained(directory)
    return save(model, directory)
