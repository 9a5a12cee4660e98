"""A chat template, taken apart once: what stands before and after the user's text, as tokens.

tokenizers splits a text at added tokens and encodes each piece by itself, so a prompt is

    opening ids (to the last added token before the user's text)
    + encode(words of the template + the user's text + words of the template)
    + closing ids (from the first added token after it)

and only the middle changes. It is encoded without added tokens: what looks like one in it is text.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from flide_engine.errors import ModelLoadError
from flide_engine.formats.bare import bare_tokenizer, can_cut

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_MARK = "the flide probe no. 7"

_PROBES = (
    _MARK,
    "a",
    "  two blanks \t and more  ",
    "\n\nlines\r\n\r\n  of\n\n\ntext\n",
    "\u3000\u65e5\u672c\u8a9e\uff0c\u4e2d\u6587\u3002\u00a0",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 1234567890 3.14",
    "\u0301e\u0301 \u212b \ufb01 \u1100\u1161\u11a8\u0327",
    "{{ x }}{% if y %} {# z #}",
    'ID: 7\n\n{"a": [1, 2.5e-3], "b": "\\n"}\n\nQuestion: what\'s it?\nA: b - c\nOne only.',
    "\x00\x1f\x7f\u200b\ufeff\u2028 It's I'LL \U0010ffff",
)


class ChatTemplate:
    """The prompt of one user turn, as token ids.

    Attributes:
        opening_ids: what every prompt begins with.
        before: the template's words between them and the user's text, which are encoded with it.
        trims: whether blanks around the user's text are left out.
        cuts: whether the text may be encoded in parts where `bare.last_cut` says.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Take the tokenizer's chat template apart.

        Args:
            tokenizer: a transformers tokenizer on a tokenizers backend.

        Raises:
            ModelLoadError: it is none, has no chat template, or does something to the text that
                cannot be replayed.
        """
        if not getattr(tokenizer, "is_fast", False):
            raise ModelLoadError(
                f"{type(tokenizer).__name__} has no tokenizers backend: save the model with a "
                "tokenizer.json"
            )
        if not tokenizer.chat_template:
            raise ModelLoadError(
                "the tokenizer has no chat template: use an instruction-tuned model"
            )
        head, tail, self.trims = _take_apart(tokenizer)
        self.opening_ids, self.before = _up_to_last_control(tokenizer, head)
        self._after, self._closing_ids = _from_first_control(tokenizer, tail)
        self._reply = _up_to_last_control(tokenizer, tail)[1]
        self._bare = bare_tokenizer(tokenizer.backend_tokenizer)
        for probe in _PROBES:
            if self.encode(probe) != _apply(tokenizer, probe, tokenize=True):
                raise ModelLoadError(
                    f"the tokens of {probe!r} in a prompt are not those of the prompt's parts, so "
                    "prompts cannot be put together: use another tokenizer"
                )
        self.cuts = can_cut(self._bare)

    def encode(self, text: str) -> list[int]:
        """The whole prompt whose user turn says `text`."""
        shown = text.strip() if self.trims else text
        return self.opening_ids + self.encode_rest(self.before + shown)

    def encode_part(self, text: str) -> list[int]:
        """A part of the user turn, from one cut to the next."""
        ids: list[int] = self._bare.encode(text).ids
        return ids

    def encode_start(self, text: str, kept: int) -> tuple[list[int], int]:
        """A part of the user turn, and how many of its leading ids lie within `kept` characters."""
        encoding = self._bare.encode(text)
        return encoding.ids, bisect_right(encoding.offsets, kept, key=lambda span: span[1])

    def encode_rest(self, text: str) -> list[int]:
        """The prompt from `text`, which ends the user turn with no blank, to its end."""
        return self.encode_part(text + self._after) + self._closing_ids

    def reply_token(self, word: str) -> int | None:
        """The token of a reply that begins with this word, or None where it takes several."""
        opened, ids = self.encode_part(self._reply), self.encode_part(self._reply + word)
        return ids[-1] if ids[:-1] == opened else None


def _apply(tokenizer: PreTrainedTokenizerFast, content: str, *, tokenize: bool) -> Any:
    try:
        return tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=tokenize,
            return_dict=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
    except Exception as error:  # a template is a program of its own and raises what it likes
        raise ModelLoadError(
            f"the chat template fails on a single user turn ({error}): use one that takes it"
        ) from error


def _take_apart(tokenizer: PreTrainedTokenizerFast) -> tuple[str, str, bool]:
    head, mark, tail = _apply(tokenizer, _MARK, tokenize=False).partition(_MARK)
    if not mark or _MARK in tail:
        raise ModelLoadError(
            "the chat template does not show the user's text exactly once: use one that does"
        )
    shown = {probe: _apply(tokenizer, probe, tokenize=False) for probe in _PROBES}
    # Jinja's trim is str.strip.
    for trims, clean in ((False, str), (True, str.strip)):
        if all(prompt == head + clean(probe) + tail for probe, prompt in shown.items()):
            return head, tail, trims
    raise ModelLoadError(
        "the chat template changes the user's text by more than trimming it: use one that does not"
    )


class _Control(NamedTuple):
    """An added token in a text: its place among the ids and among the characters."""

    place: int
    start: int
    end: int


def _controls(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[list[int], list[_Control]]:
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids: list[int] = encoded["input_ids"]
    controls = [
        _Control(place, *span)
        for place, (token_id, span) in enumerate(zip(ids, encoded["offset_mapping"], strict=True))
        if token_id in added
    ]
    return ids, controls


def _up_to_last_control(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[list[int], str]:
    ids, controls = _controls(tokenizer, text)
    if not controls:
        return [], text
    last = controls[-1]
    _check_stands_alone(tokenizer, ids[last.place])
    return ids[: last.place + 1], text[last.end :]


def _from_first_control(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[str, list[int]]:
    ids, controls = _controls(tokenizer, text)
    if not controls:
        return text, []
    first = controls[0]
    _check_stands_alone(tokenizer, ids[first.place])
    return text[: first.start], ids[first.place :]


def _check_stands_alone(tokenizer: PreTrainedTokenizerFast, token_id: int) -> None:
    token = tokenizer.backend_tokenizer.get_added_tokens_decoder()[token_id]
    if token.lstrip or token.rstrip or token.single_word:
        raise ModelLoadError(
            f"the control token {token.content!r} beside the user's text takes its neighbours into "
            "account (lstrip, rstrip or single_word): use a tokenizer whose control tokens do not"
        )
