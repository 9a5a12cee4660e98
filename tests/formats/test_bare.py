"""Text is encoded without control tokens, and cut only where that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from flide_engine.errors import ModelLoadError
from flide_engine.formats.bare import bare_tokenizer, can_cut, last_cut

# Characters that the patterns or NFC treat in their own ways, and all others.
CUTTABLE = st.text(
    st.sampled_from(
        "aesrtl0123 \n\r\t\xa0\u3000'.,=<-\u0338\u0301\u0327\u304b\u3099\uac00\u1161\u11a8\u65e5"
        "\u3002\u0663\u00b2\u2160\U0001f600\u200d\ufe0f\u09c7\u09be\u017f\u00e9\u0439\x1c\x85\x00"
    )
    | st.characters(codec="utf-8"),
    max_size=9,
)


def pattern(letters: str, numbers: str) -> pre_tokenizers.PreTokenizer:
    """How Llama 3 and Qwen split."""
    signs = letters.strip("[]")
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(
                    rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{numbers}"
                    rf"| ?[^\s{signs}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
                ),
                "isolated",
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
SMOLLM2 = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])
LLAMA3 = pattern(r"\p{L}", r"\p{N}{1,3}")
QWEN2 = pattern(r"\p{L}", r"\p{N}")
QWEN3_5 = pattern(r"[\p{L}\p{M}]", r"\p{N}")


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("", ""),
        ("word", "word"),
        ("two words", " words"),
        ("two words  \n", "  \n"),
        ("it's", "'s"),
        ('{"name":"Jo', '":"Jo'),
        ("line\nnext", "next"),
        ("line.\n next", ".\n next"),
        ("5 lines\n\n", "\n\n"),
        ("id 12", " 12"),
        ("id12", "12"),
        ("12kg", "kg"),
        ("\u4eca\u65e5\u3002\u660e\u65e5", "\u3002\u660e\u65e5"),
        ("\uff0c\u660e\u65e5", "\uff0c\u660e\u65e5"),
        ("...!?", "...!?"),
        ("e\u0301 \u0301", " \u0301"),
        ("a\u00a0 b", "a\u00a0 b"),
        ("   b", "   b"),
    ],
)
def test_a_text_is_cut_as_late_as_is_safe(text: str, tail: str) -> None:
    """What comes after the last cut is a word or a number, or what may become one."""
    assert text[last_cut(text) :] == tail


@pytest.mark.parametrize("split", [GPT2, SMOLLM2, LLAMA3, QWEN2, QWEN3_5])
@pytest.mark.parametrize("normalizer", [normalizers.NFC(), normalizers.Sequence([])])
@settings(deadline=None)
@given(text=CUTTABLE, rest=CUTTABLE)
def test_both_sides_of_a_cut_are_split_apart(
    split: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer, text: str, rest: str
) -> None:
    """Whatever the text goes on with, for every pattern that may be cut."""
    cut = last_cut(text)
    normal = [normalizer.normalize_str(part) for part in (text[:cut], text[cut:] + rest)]
    assert normalizer.normalize_str(text + rest) == "".join(normal)
    whole, left, right = (
        [piece for piece, _ in split.pre_tokenize_str(part)] for part in ("".join(normal), *normal)
    )
    assert whole == left + right


@pytest.mark.parametrize(
    ("pre_tokenizer", "normalizer", "cuts"),
    [
        (GPT2, None, True),
        (GPT2, normalizers.NFC(), True),
        (SMOLLM2, None, True),
        (LLAMA3, None, True),
        (QWEN2, normalizers.NFC(), True),
        (QWEN3_5, normalizers.NFC(), True),
        (pattern(r"[\p{L}\p{M}]", r"\p{N}+ ?"), normalizers.NFC(), False),
        (GPT2, normalizers.NFKC(), False),
        (GPT2, normalizers.NFD(), False),
        (pre_tokenizers.ByteLevel(use_regex=False), None, False),
        (pre_tokenizers.ByteLevel(), normalizers.NFC(), False),
        (pre_tokenizers.ByteLevel(), normalizers.Strip(), False),
        (pre_tokenizers.ByteLevel(), normalizers.Replace(": ", ":"), False),
        (pre_tokenizers.Metaspace(), None, False),
        (pre_tokenizers.Split(" ", "merged_with_previous"), None, False),
        (pre_tokenizers.Digits(), None, False),
        (None, None, False),
    ],
)
def test_a_cut_must_be_known_to_be_safe(pre_tokenizer: Any, normalizer: Any, cuts: bool) -> None:
    """A component that is not known, or that joins the two sides, forbids all cuts."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    bare = Tokenizer(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    bare.pre_tokenizer, bare.normalizer = pre_tokenizer, normalizer
    assert can_cut(bare) is cuts


def test_a_control_token_that_merging_builds_is_refused() -> None:
    """Where the merges make a control token of ordinary text, no text is safe."""
    vocab = {token: index for index, token in enumerate(["<", "e", ">", "<e", "<e>"])}
    backend = Tokenizer(models.BPE(vocab, [("<", "e"), ("<e", ">")]))
    backend.add_special_tokens(["<e>"])
    with pytest.raises(ModelLoadError, match=r"become the control tokens \['<e>'\]"):
        bare_tokenizer(backend)
