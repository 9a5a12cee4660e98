"""A state and its questions as the tokens of one request."""

from __future__ import annotations

from itertools import takewhile
from reprlib import repr as brief
from typing import TYPE_CHECKING

import numpy as np

from flide_engine.core import Branch, Request
from flide_engine.errors import InvalidRequest
from flide_engine.formats.labels import Labels
from flide_engine.formats.prompt import QUESTION, question_text
from flide_engine.formats.template import ChatTemplate
from flide_engine.formats.text import quote, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedTokenizerFast

    from flide_engine.core import Tokens
    from flide_engine.formats.labels import Label
    from flide_engine.formats.questions import Question
    from flide_engine.formats.text import Text


class Formatter:
    """Turns states and questions into requests for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Study the tokenizer and its chat template, once.

        Raises:
            ModelLoadError: prompts cannot be put together exactly, or options cannot be labelled.
        """
        self._template = ChatTemplate(tokenizer)
        self._labels = Labels(self._template)

    def plan(
        self,
        state: Text,
        questions: Mapping[str, Question],
        *,
        tenant: str = "",
        durable: int | None = None,
    ) -> Request:
        """The request that asks these questions about the state.

        The trunk ends before any token that holds text of a question, so it is the same whatever is
        asked. The branches are in the order of the questions.

        Args:
            state: a string, an object or an array.
            questions: by id; the id is never shown to the model. None leaves only checkpoints.
            tenant: whose request it is.
            durable: how many leading characters of the rendered state the next request will
                probably begin with. None means all of it, or for an array all before the last
                element, which is taken for what is only true of this step.

        Raises:
            InvalidRequest: the state, an id or `durable` breaks a rule.
        """
        text = _state_text(state)
        if "" in questions:
            raise InvalidRequest("a question has the empty id: give it a name")
        kept = _kept(state, text, durable)
        labels = [self._labels.of(question) for question in questions.values()]
        texts = [
            question_text(question, [label.word for label in chosen])
            for question, chosen in zip(questions.values(), labels, strict=True)
        ]
        trunk, inside, tails = self._encode(text + QUESTION, kept, texts)
        branches = (_branch(*both) for both in zip(tails, labels, strict=True))
        return Request(_array(trunk), tuple(branches), tenant, inside)

    def _encode(
        self, start: str, kept: int, rests: list[str]
    ) -> tuple[list[int], int, list[list[int]]]:
        trunk, inside = self._template.encode_start(start, kept)
        if self._template.cuts:
            return trunk, inside, [self._template.encode_rest(rest) for rest in rests]
        # `trunk` holds no question, so what it shares with the prompts does not either.
        prompts = [self._template.encode(start + rest) for rest in rests]
        shared = _shared([trunk, *prompts])
        return trunk[:shared], min(inside, shared), [prompt[shared:] for prompt in prompts]


def _shared(sequences: list[list[int]]) -> int:
    alike = takewhile(lambda column: len(set(column)) == 1, zip(*sequences, strict=False))
    return sum(1 for _ in alike)


def _state_text(state: Text) -> str:
    if not isinstance(state, (str, dict, list, tuple)):
        raise InvalidRequest(
            f"state is {brief(state)}, but must be a string, an object or an array: write it as one"
        )
    return render(state, "state")


def _kept(state: Text, text: str, durable: int | None) -> int:
    if durable is None:
        if isinstance(state, (list, tuple)) and state:
            return len(text) - len(quote(state[-1])) - len("]")
        return len(text)
    if not 0 <= durable <= len(text):
        raise InvalidRequest(
            f"durable is {durable!r}, but counts leading characters of the state, 0 to "
            f"{len(text)}: leave it out for all of them"
        )
    return durable


def _branch(token_ids: list[int], labels: tuple[Label, ...]) -> Branch:
    return Branch(_array(token_ids), _array([label.token_id for label in labels]))


def _array(ids: list[int]) -> Tokens:
    return np.array(ids, dtype=np.int64)
