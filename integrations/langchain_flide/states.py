"""What a decision model is asked about, taken apart into a history and the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, is_data_content_block

from flide_agent import InvalidInput, Question, parse_questions
from flide_agent.history import messages_to_history

_CALL = frozenset({"id", "name", "args", "type"})


@dataclass(frozen=True, slots=True)
class StateParts:
    """A state.

    Attributes:
        history: its messages; None if it is about something else.
        rest: what is only true of this step, as JSON; None if there is nothing.
    """

    history: Sequence[Any] | None
    rest: Any

    @property
    def whole(self) -> Any:
        """What to ask about without a session: of a history, the text that a session has of it."""
        if self.history is None:
            return self.rest
        turns = messages_to_history(self.history)
        if self.rest is not None:
            turns += messages_to_history([self.rest])
        return "".join(turn.text for turn in turns)


def read_state(state: Any) -> StateParts:
    """Take a state apart.

    A list of messages, or the "messages" of a map, are a history; the other entries of the map are
    the rest. So the `{"messages", "tool_call", "tool_description"}` of LangChain's
    `AutoModeMiddleware` is a history and a pending call. Any other state has no history.

    Raises:
        InvalidInput: a message cannot be read.
    """
    if _is_history(state):
        return StateParts(state, None)
    if isinstance(state, Mapping) and _is_history(state.get("messages")):
        rest = {key: plain(value) for key, value in state.items() if key != "messages"}
        return StateParts(state["messages"], rest or None)
    return StateParts(None, plain(state))


def read_questions(questions: Mapping[str, Any]) -> dict[str, Question]:
    """Questions as langchain-core or this package has them.

    Raises:
        InvalidInput: one cannot be asked, such as one about a place in an image.
    """
    return parse_questions({key: _question(value) for key, value in questions.items()})


def plain(value: Any) -> Any:
    """A value as JSON: messages in canonical form, media as a digest, calls without their ids.

    Raises:
        InvalidInput: a message in it cannot be read.
    """
    if isinstance(value, BaseMessage):
        return _written([value])[0]
    if isinstance(value, Mapping):
        if _is_media(value):
            return _written([("user", [dict(value)])])[0]["content"][0]
        # The id of a call is drawn at random and tells nothing.
        call = "name" in value and "args" in value and value.keys() <= _CALL
        return {k: plain(v) for k, v in value.items() if not (call and k in ("id", "type"))}
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(entry, BaseMessage) for entry in value):
            return _written(value)
        return [plain(entry) for entry in value]
    return value


def _question(question: Any) -> Any:
    if not hasattr(question, "model_dump"):
        return question
    fields = question.model_dump(mode="json")
    if _holds_media(fields):
        raise InvalidInput(
            "a question holds an image, audio or a file, which this engine does not read; "
            "describe it in words."
        )
    return fields


def _is_history(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return all(
        isinstance(entry, BaseMessage) or (isinstance(entry, Mapping) and "role" in entry)
        for entry in value
    )


def _is_media(value: Mapping[Any, Any]) -> bool:
    return isinstance(value.get("type"), str) and is_data_content_block(dict(value))


def _holds_media(value: Any) -> bool:
    if isinstance(value, dict):
        return _is_media(value) or any(map(_holds_media, value.values()))
    return isinstance(value, list) and any(map(_holds_media, value))


def _written(messages: Sequence[Any]) -> list[Any]:
    return [json.loads(turn.text) for turn in messages_to_history(messages)]
