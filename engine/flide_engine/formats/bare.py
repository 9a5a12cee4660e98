"""A tokenizer that takes every text for text, and where its input may be cut in two."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

from flide_engine.errors import ModelLoadError

if TYPE_CHECKING:
    from tokenizers.models import Model


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


# Where a text may be cut, so that its two sides encoded apart are the whole, whatever they say.
#
# The patterns of GPT-2 (which is ByteLevel's own), Llama 3, Qwen2 and Qwen3.5 are matched from left
# to right without looking back. Let characters be letters, numbers, blanks or else signs. In what
# these patterns match
#   - only letters, or marks upon them, follow a letter, and only numbers a number;
#   - letters, signs and line breaks follow a sign;
#   - anything follows a blank, but U+0020 follows only blanks;
# and they look ahead only behind blanks, at the next character. So where they let one character not
# follow another, all that could match before that place ends there at the latest, and is the same
# if the text does: the next match begins there. That gives the first four cuts. The last one is
# behind a line break that is no run of blanks: it ends the match of the sign before it, or is one
# by itself, be it followed by something visible or by nothing.
#
# NFC makes no difference: the characters named here are starters that join none before them, and
# stay in their class when a mark joins them; and it makes nothing blank or visible. "Digits" parts
# the text before the pattern does; where it does not part it at a cut, the pattern does. What is
# merged afterwards is merged within one match.
_LETTER = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0391-\u03a1\u03a3-\u03ce\u0400-\u0481"
    "\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fa5\uac00-\ud7a3"
)
_SIGN = r"!-/:-@\[-`{-~\u3001\u3002\u300a-\u300f\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
_CUT = re.compile(
    r"(?<=\S)(?= )"
    rf"|(?<=[0-9{_LETTER}])(?=[\t\n\r{_SIGN}])"
    rf"|(?<=[0-9])(?=[{_LETTER}])"
    rf"|(?<=[{_LETTER}{_SIGN}])(?=[0-9])"
    rf"|(?<=\S\n)(?=[0-9{_LETTER}{_SIGN}])"
)
_UP_TO_LAST_CUT = re.compile(f".*(?:{_CUT.pattern})", re.DOTALL)

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_PATTERNS = frozenset(
    "|".join((_CONTRACTION, *words, _BLANKS))
    for words in (
        (r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*"),
        (r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n]*"),
        (r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),
    )
)

_BEFORE = (
    *("", "\n", "state\n\n", "a state.\t", "7\n ", "\u65e5\u672c", "e\u0301", "\U0001f600\r\n\n"),
    *("x::", "it'", "x\n", ".\n", " \n", "12", "=", "\uac00", "\u180e", "\u200b", "\ufeff", "\xa0"),
)
_AFTER = (
    *(" Is it?", ": two", "\n\n", "\t7", "42", "\u0301x ", "\u65e5\u3002", "'s", "\U0001f600 :"),
    *("\x00 ", "a.b", "=\u0338", "\u3001\u3099", " \u0301", "e\u0301 ", "\u1161\u11a8 ", "\r\n-1"),
)


def can_cut(bare: Tokenizer) -> bool:
    """Whether `last_cut` holds for this tokenizer: what comes before and after is encoded apart.

    False where this is not known.
    """
    parts = json.loads(_with_model(BPE(), bare).to_str())
    forms = _flat(parts["normalizer"], "normalizers")
    splits = _flat(parts["pre_tokenizer"], "pretokenizers")
    return (
        all(form == {"type": "NFC"} for form in forms)
        and all(_is_known(split) for split in splits)
        and any(split["type"] == "Split" or split.get("use_regex") for split in splits)
        and all(
            _is_cut(bare, probe[: cut.start()], probe[cut.start() :])
            for probe in (before + after for before in _BEFORE for after in _AFTER)
            for cut in _CUT.finditer(probe)
        )
    )


def last_cut(text: str) -> int:
    """The last place at which a text that may still grow can be cut; 0 where there is none.

    What comes after it is mostly a word. Runs of signs or of blanks are not cut, nor are words of
    scripts other than those above, except before U+0020.
    """
    found = _UP_TO_LAST_CUT.match(text)
    return found.end() if found else 0


def _is_known(split: dict[str, Any]) -> bool:
    match split:
        case {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}:
            return pattern in _PATTERNS and split["invert"] is False
        case {"type": "ByteLevel"}:
            return split["add_prefix_space"] is False
    return bool(split["type"] == "Digits")


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
