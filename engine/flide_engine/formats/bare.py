"""A tokenizer that takes every text for text, and where its input may be cut in two."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

from flide_engine.errors import ModelLoadError

if TYPE_CHECKING:
    from tokenizers.models import Model

# Each of these maps a pre-token to pre-tokens, looking at nothing else.
_LOCAL_PRE_TOKENIZERS = frozenset(
    ("ByteLevel", "Digits", "Punctuation", "Split", "Whitespace", "WhitespaceSplit")
)
_UNICODE_FORMS = frozenset(("NFC", "NFD", "NFKC", "NFKD"))

_BEFORE = ("", "\n", "state\n\n", "a state.\t", "7\n ", "日本", "e\u0301", "😀\r\n\n", "x::")
_AFTER = ("", "Is it?", " two", "\n\n", "\t7", "42", "\u0301x", "日本", ":", "'s", "😀", "\x00")


def bare_tokenizer(backend: Tokenizer) -> Tokenizer:
    """The tokenizer without its added tokens, special or not, so that no text can name one.

    Raises:
        ModelLoadError: ordinary text can become one of them all the same.
    """
    model = backend.model
    forgeable = [
        token.content
        for token_id, token in backend.get_added_tokens_decoder().items()
        if _can_produce(model, token_id)
    ]
    if forgeable:
        raise ModelLoadError(
            f"ordinary text can become the control tokens {forgeable!r}: use a tokenizer whose "
            "vocabulary or merges do not build them"
        )
    return _with_model(model, backend)


def _can_produce(model: Model, token_id: int) -> bool:
    # Some vocabularies list their control tokens. Merging is the same wherever a text stands, so a
    # token that its own text, taken as one pre-token, does not become comes out of no other text.
    text = model.id_to_token(token_id)
    return text is not None and any(token.id == token_id for token in model.tokenize(text))


def _with_model(model: Model, like: Tokenizer) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = like.normalizer, like.pre_tokenizer
    return tokenizer


def cuts_before_blank(bare: Tokenizer) -> bool:
    """Whether "...:" and " ..." may be encoded apart, for every text in place of the dots.

    False where this is not known: then prompts are encoded whole.
    """
    # Three things make it safe. The Unicode normal forms compose nothing across the cut, as ":" and
    # " " are starters that join no character before them. Pre-tokens are merged each by itself. And
    # one ends between ":" and " ": the patterns of byte-level BPE are matched from left to right
    # without looking back, and a blank only ever begins a match or follows other blanks in it,
    # which the probes confirm for this tokenizer.
    parts = json.loads(_with_model(BPE(), bare).to_str())
    splits = _flat(parts["pre_tokenizer"], "pretokenizers")
    local = all(
        part["type"] in _LOCAL_PRE_TOKENIZERS and "(?<" not in str(part.get("pattern"))
        for part in splits
    )
    forms = _flat(parts["normalizer"], "normalizers")
    if not splits or not local or not all(part["type"] in _UNICODE_FORMS for part in forms):
        return False
    return all(_is_cut(bare, f"{before}:", f" {after}") for before in _BEFORE for after in _AFTER)


def _flat(part: dict[str, Any] | None, children: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [leaf for child in part[children] for leaf in _flat(child, children)]
    return [part]


def _is_cut(bare: Tokenizer, left: str, right: str) -> bool:
    starts = {start for _, (start, _) in bare.pre_tokenizer.pre_tokenize_str(left + right)}
    whole, parts = bare.encode(left + right).ids, (bare.encode(left).ids, bare.encode(right).ids)
    return len(left) in starts and whole == parts[0] + parts[1]
