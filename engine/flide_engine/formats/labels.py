"""The words that answer a question, each one token at the start of the reply."""

from __future__ import annotations

from itertools import chain, islice, product
from string import ascii_uppercase, digits
from typing import TYPE_CHECKING, NamedTuple

from flide_engine.errors import ModelLoadError
from flide_engine.formats.prompt import LETTERS
from flide_engine.formats.questions import MOST_LEVELS, MOST_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flide_engine.formats.questions import Question
    from flide_engine.formats.template import ChatTemplate

_YES_NO = (("yes", "no"), ("Yes", "No"), ("YES", "NO"))


class Label(NamedTuple):
    """A word of the reply and its token."""

    word: str
    token_id: int


class Labels:
    """The labels of a tokenizer, found once.

    A choice is answered with A to Z, then with AA, AB and so on as far as they are single tokens.
    """

    def __init__(self, template: ChatTemplate) -> None:
        """Find them.

        Raises:
            ModelLoadError: the tokenizer lacks a token for a letter, a digit, or yes and no.
        """
        self._choice = _first(_single(template, _codes()), MOST_OPTIONS)
        self._score = _first(_single(template, digits), MOST_LEVELS)
        pairs = (_first(_single(template, pair), 2) for pair in _YES_NO)
        self._noul = next((pair for pair in pairs if len(pair) == 2), ())
        letters = "".join(label.word for label in self._choice[:LETTERS])
        if letters != ascii_uppercase or len(self._score) < MOST_LEVELS or not self._noul:
            raise ModelLoadError(
                "the tokenizer has no single token for each of A to Z, 0 to 9, yes and no at the "
                "start of a reply: use another model"
            )

    def of(self, question: Question) -> tuple[Label, ...]:
        """The label of every option of the question.

        Raises:
            ModelLoadError: the tokenizer has fewer labels than the question has options.
        """
        labels = {"choice": self._choice, "score": self._score, "noul": self._noul}[question.kind]
        count = len(question.options)
        if len(labels) < count:
            raise ModelLoadError(
                f"the tokenizer has {len(labels)} labels for the {count} options of a choice: "
                "split the question or use another model"
            )
        return labels[:count]


def _codes() -> Iterator[str]:
    words = chain.from_iterable(product(ascii_uppercase, repeat=length) for length in (1, 2, 3))
    return map("".join, words)


def _single(template: ChatTemplate, words: Iterable[str]) -> Iterator[Label]:
    """Those of the words that are one token, and not the token of an earlier one."""
    seen = set()
    for word in words:
        token_id = template.reply_token(word)
        if token_id is not None and token_id not in seen:
            seen.add(token_id)
            yield Label(word, token_id)


def _first(labels: Iterator[Label], count: int) -> tuple[Label, ...]:
    return tuple(islice(labels, count))
