"""Messages of several frameworks to turns of canonical text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flide_agent._json import describe, quote
from flide_agent.exceptions import InvalidInput
from flide_agent.history.calls import all_calls, fields_of, listed_calls, written_calls
from flide_agent.history.content import read_content
from flide_agent.history.text import canonical, record, utf8, value_line

_ROLES = {
    "system": "system",
    "developer": "system",
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "SystemMessageChunk": "system",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "ToolMessageChunk": "tool",
    "FunctionMessageChunk": "tool",
}
_TYPES = frozenset({*_ROLES, "chat", "remove"})
"""What LangChain's messages have as their type."""

# Users and system prompts are named by whoever writes them. An assistant is named by the framework
# that runs it, so the same answer has a name or none depending on who ran it; a tool is named in
# its call already.
_NAMED = frozenset({"user", "system"})


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a history.

    Attributes:
        text: what is read and hashed; the other two only come along.
        summary: a hint that this turn stands for earlier ones.
        calls: the keys of the tool calls that results may answer after this turn, in order, ""
            where one is answered already; empty when none is open.
    """

    text: str
    summary: bool = False
    calls: tuple[str, ...] = ()


@dataclass(slots=True)
class _Result:
    """A tool result before it is paired with its call.

    Attributes:
        turn: what it is if it answers the first call that is open.
        answers: the key of its call.
        parts: what its text is made of.
    """

    turn: Turn
    answers: str
    parts: Mapping[str, str]


def messages_to_history(messages: Sequence[object], *, calls: Sequence[str] = ()) -> list[Turn]:
    """Write messages as turns of canonical text.

    Each message is one of

    - a string: a turn by itself, verbatim; an empty one adds nothing;
    - a map with a "role", as OpenAI has it, or with the "type" of a LangChain message;
    - an object with these as attributes, such as LangChain's messages;
    - a tuple of role and content;
    - any other JSON value.

    Tool results that follow each other are put in the order of their calls. Each is taken to answer
    the first call that is open; one that answers another has the place of that call, counted from
    0, or null if it is not known which.

    To continue a history, pass what its last turn left open: `calls=turns[-1].calls`. That equals
    writing it as a whole, unless results that belong together are divided out of order.

    Args:
        messages: what happened, oldest first.
        calls: the calls that the turns before left open.

    Raises:
        InvalidInput: a message is of no known form or role, or holds what is not JSON.
    """
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise InvalidInput(f"{describe(messages)} was given, but messages must be in a list.")
    turns: list[Turn] = []
    results: list[_Result] = []
    left: Sequence[str] = calls
    for turn in _read(messages):
        if isinstance(turn, _Result):
            results.append(turn)
            continue
        if results:
            turns += _paired(results, left)
            results = []
        turns.append(turn)
        left = turn.calls
    return turns + _paired(results, left)


def state_text(state: object) -> str:
    """A step-local state as the model reads it after a history.

    A string is taken verbatim and JSON is written whole, whatever it looks like: a pending call may
    have the fields of a message, and must lose none. A message object is written as in a history.

    Raises:
        InvalidInput: it is neither.
    """
    if isinstance(state, str):
        utf8(state)
        return state
    if state is None or isinstance(state, (bool, int, float, dict, list, tuple)):
        try:
            return value_line(state)
        except InvalidInput as error:
            raise InvalidInput(f"the state: {error}") from None
    return "".join(turn.text for turn in messages_to_history([state]))


def system_turn(text: str) -> Turn:
    """The turn of a system prompt, which comes first in a history.

    Raises:
        InvalidInput: it is not text, or holds half a surrogate pair.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"{describe(text)} was given, but a system prompt must be text.")
    return messages_to_history([("system", text)])[0]


def _read(messages: Sequence[object]) -> Iterator[Turn | _Result]:
    for index, message in enumerate(messages):
        try:
            if not isinstance(message, str):
                fields = _fields(message)
                yield Turn(value_line(message)) if fields is None else _of_fields(fields)
            elif message:
                utf8(message)
                yield Turn(message)
        except InvalidInput as error:
            raise InvalidInput(f"messages[{index}]: {error}") from None


def _fields(message: object) -> dict[str, Any] | None:
    """The fields of a message, or None for a JSON value that is none."""
    if isinstance(message, tuple):
        if len(message) != 2:
            raise InvalidInput(
                f"a tuple of {len(message)} was given, but a tuple is a role and its content; "
                "write an array as a list."
            )
        return {"role": message[0], "content": message[1]}
    if not isinstance(message, dict):
        fields = fields_of(message)
        return fields if fields and "content" in fields else None
    if "role" in message:
        return message
    if not isinstance(kind := message.get("type"), str) or kind not in _TYPES:
        return None
    if isinstance(data := message.get("data"), dict):
        return {"type": kind, **data}
    return message if "content" in message else None


def _of_fields(fields: Mapping[str, Any]) -> Turn | _Result:
    extra = fields_of(fields.get("additional_kwargs")) or {}
    role = _role(fields)
    content = read_content(_content(fields))
    parts = {"role": f'"{role}"'}
    if role in _NAMED and (name := fields.get("name")):
        parts["name"] = canonical(name, "name")
    parts["content"] = canonical(content.body, "content")
    if refusal := content.refusal or fields.get("refusal") or extra.get("refusal"):
        parts["refusal"] = canonical(refusal, "refusal")
    calls = listed_calls(fields, extra)
    if calls or content.calls:
        calls = all_calls(calls, content.calls)
        parts["calls"] = written_calls(calls)
    if fields.get("status") == "error":
        parts["status"] = '"error"'
    text = record(parts, "\n")
    summary = extra.get("lc_source") == "summarization"
    if role == "tool":
        answers = str(fields.get("tool_call_id") or fields.get("name") or "")
        return _Result(Turn(text, summary), answers, parts)
    return Turn(text, summary, _open([call.key for call in calls]) if calls else ())


def _role(fields: Mapping[str, Any]) -> str:
    role = fields.get("role", fields.get("type"))
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(quote(name) for name in dict.fromkeys(_ROLES.values()))
        raise InvalidInput(f"{describe(role)} is not a role that is known; use one of {known}.")
    return _ROLES[role]


def _content(fields: Mapping[str, Any]) -> object:
    if "content" not in fields and not fields.get("tool_calls") and not fields.get("function_call"):
        raise InvalidInput('the message has no "content"; give its text, or "" if it has none.')
    return fields.get("content")


def _paired(results: Sequence[_Result], calls: Sequence[str]) -> list[Turn]:
    """Results in the order of the calls they answer, those that answer none of them last."""
    free = list(calls)
    paired: list[tuple[int | None, _Result]] = []
    for result in results:
        place = free.index(result.answers) if result.answers and result.answers in free else None
        if place is not None:
            free[place] = ""
        paired.append((place, result))
    paired.sort(key=lambda pair: len(calls) if pair[0] is None else pair[0])
    left = list(calls)
    return [_answering(place, result, left) for place, result in paired]


def _answering(place: int | None, result: _Result, left: list[str]) -> Turn:
    """The turn of a result that answers the call at a place, which is taken out of those left.

    The place is written only if it is not the first that is left. So results that came in order
    read the same in a window that begins after their calls.
    """
    text = result.turn.text
    if place != next((first for first, call in enumerate(left) if call), None):
        text = record({**result.parts, "call": canonical(place, "call")}, "\n")
    if place is not None:
        left[place] = ""
    return Turn(text, result.turn.summary, _open(left))


def _open(calls: Sequence[str]) -> tuple[str, ...]:
    return tuple(calls) if any(calls) else ()
