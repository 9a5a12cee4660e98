"""A state and its questions as the tokens of one request."""

from __future__ import annotations

from itertools import takewhile
from reprlib import repr as brief
from typing import TYPE_CHECKING

import numpy as np

from flide_engine.core import Branch, Request
from flide_engine.errors import InvalidRequest
from flide_engine.formats.growing import GrowingText
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

    def begin(self, tenant: str = "") -> GrowingText:
        """The empty text of a tenant, to be grown and planned with."""
        return GrowingText.begin(self._template, tenant)

    def plan(
        self,
        state: Text | GrowingText,
        questions: Mapping[str, Question],
        *,
        tenant: str = "",
        durable: int | None = None,
        local: str = "",
    ) -> Request:
        """The request that asks these questions about the state.

        The trunk ends before any token that holds text of a question, so it is the same whatever is
        asked. The branches are in the order of the questions.

        Args:
            state: a string, an object, an array, or a text that grows.
            questions: by id; the id is never shown to the model. None leaves only checkpoints.
            tenant: whose request it is; a text that grows has its own.
            durable: how many leading characters of the rendered state the next request will
                probably begin with. None means all of it, or for an array all before the last
                element, which is taken for what is only true of this step.
            local: text after the state that is only true of this step.

        Raises:
            InvalidRequest: the state, an id, `durable` or `local` breaks a rule.
        """
        if "" in questions:
            raise InvalidRequest("a question has the empty id: give it a name")
        local = render(local, "local")
        if isinstance(state, GrowingText):
            history = self._checked(state, tenant, durable)
        else:
            text = _state_text(state)
            kept = _kept(state, text, durable)
            history, local = self.begin(tenant).grow(text[:kept]), text[kept:] + local
        labels = [self._labels.of(question) for question in questions.values()]
        texts = [
            question_text(question, [label.word for label in chosen])
            for question, chosen in zip(questions.values(), labels, strict=True)
        ]
        ids, inside, tails = self._encode(history, local + QUESTION, texts)
        return Request(
            trunk=np.concatenate([history.ids, _array(ids)]),
            branches=tuple(_branch(*both) for both in zip(tails, labels, strict=True)),
            tenant=history.tenant,
            durable=history.count + inside,
            digests=history.digests,
        )

    def _checked(self, state: GrowingText, tenant: str, durable: int | None) -> GrowingText:
        assert state.template is self._template, "a text grows for the prompts of one formatter"
        if durable is not None:
            raise InvalidRequest(
                f"durable is {durable!r}, but all of a text that grows is durable: give what is "
                "not as local"
            )
        if tenant not in ("", state.tenant):
            raise InvalidRequest(
                f"the tenant is {tenant!r}, but the text is one of {state.tenant!r}: begin another"
            )
        return state

    def _encode(
        self, history: GrowingText, more: str, rests: list[str]
    ) -> tuple[list[int], int, list[list[int]]]:
        """The trunk after the ids of the history, how much of it is durable, and the branches."""
        start = history.tail + history.shown(more)
        trunk, inside = self._template.encode_start(start, len(history.tail))
        if self._template.cuts:
            return trunk, inside, [self._template.encode_rest(rest) for rest in rests]
        # `trunk` holds no question, so what it shares with the prompts does not either.
        prompts = [self._template.encode_rest(start + rest) for rest in rests]
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
