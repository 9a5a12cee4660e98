"""What is no history, and in which words it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    message_to_dict,
)

from flide_agent import InvalidInput
from flide_agent.history import ROOT, digest, extend, messages_to_history, system_turn

ROLES = 'use one of "system", "user", "assistant", "tool".'

REFUSED = {
    "unknown role": (
        {"role": "admin", "content": "x"},
        f'the text "admin" is not a role that is known; {ROLES}',
    ),
    "role of its own": (
        ChatMessage(content="x", role="critic"),
        f'the text "critic" is not a role that is known; {ROLES}',
    ),
    "instruction": (RemoveMessage("x"), f'the text "remove" is not a role that is known; {ROLES}'),
    "instruction as a map": (
        message_to_dict(RemoveMessage("x")),
        f'the text "remove" is not a role that is known; {ROLES}',
    ),
    "role no text": ({"role": [], "content": ""}, f"an array is not a role that is known; {ROLES}"),
    "no content": (
        {"role": "user", "text": "x"},
        'the message has no "content"; give its text, or "" if it has none.',
    ),
    "content no text": (
        {"role": "tool", "content": {"a": 1}},
        "a map was given as content, but it must be text or a list of blocks; write it as text.",
    ),
    "block no map": (
        {"role": "user", "content": ["x", 5]},
        "the number 5 was given as a block of content, but it must be text or a map.",
    ),
    "bytes in a block": (
        {"role": "user", "content": [{"type": "receipt", "value": b"x"}]},
        "a Python bytes is not JSON (at content[0].value); convert it first.",
    ),
    "not finite": (
        AIMessage("", tool_calls=[{"id": "c", "name": "f", "args": {"x": float("inf")}}]),
        "inf is not a number in JSON (at args.x); use null.",
    ),
    "number as key": (
        AIMessage("", tool_calls=[{"id": "c", "name": "f", "args": {"x": {1: 2}}}]),
        "the number 1 is not text, as the keys of a map must be (at args.x); quote it.",
    ),
    "calls no list": (
        {"role": "assistant", "content": "", "tool_calls": {"name": "f"}},
        "a map was given, but tool_calls must be a list.",
    ),
    "call no map": (
        {"role": "assistant", "content": "", "tool_calls": ["f"]},
        'the text "f" was given as a tool call, but it must be a map.',
    ),
    "name no text": (
        {"role": "assistant", "content": "", "tool_calls": [{"name": 5}]},
        "the number 5 was given as a tool's name, but it must be text.",
    ),
    "half a character": (
        "a\ud800",
        "the lone surrogate \\ud800 is half a character; write the whole one or drop it.",
    ),
    "half a character inside": (
        HumanMessage("\udc00"),
        "the lone surrogate \\udc00 is half a character; write the whole one or drop it.",
    ),
    "value not finite": ([float("nan")], "nan is not a number in JSON (at [0]); use null."),
    "endless integer": (10**5000, "it holds an integer of thousands of digits; quote it."),
    "no JSON": (object(), "a Python object is not JSON; convert it first."),
    "tuple of three": (
        (1, 2, 3),
        "a tuple of 3 was given, but a tuple is a role and its content; write an array as a list.",
    ),
}


@pytest.mark.parametrize(("message", "sentence"), REFUSED.values(), ids=REFUSED)
def test_names_the_message_and_the_way_out(message: object, sentence: str) -> None:
    """One sentence says which message, what was given, the rule and what to do."""
    with pytest.raises(InvalidInput) as caught:
        messages_to_history(["first", message])

    assert str(caught.value) == f"messages[1]: {sentence}"


@pytest.mark.parametrize("messages", ["text", HumanMessage("x"), {"role": "user", "content": "x"}])
def test_a_single_message_is_no_history(messages: Any) -> None:
    """A message alone would be taken apart into its characters or keys."""
    with pytest.raises(InvalidInput, match="but messages must be in a list"):
        messages_to_history(messages)


def test_system_prompt_must_be_text() -> None:
    """A system message is a message, not a prompt."""
    with pytest.raises(InvalidInput, match="a system prompt must be text"):
        system_turn(HumanMessage("x"))  # type: ignore[arg-type]


@pytest.mark.parametrize("head", ["", ROOT.upper(), ROOT[1:], ROOT + "0", 5])
def test_head_must_be_a_head(head: Any) -> None:
    """A head that is cut or made up names no history."""
    with pytest.raises(InvalidInput, match="is no head"):
        extend(head, ["x"])


def test_half_a_character_has_no_digest() -> None:
    """It has no bytes."""
    with pytest.raises(InvalidInput, match="lone surrogate"):
        digest("\ud800")
    with pytest.raises(InvalidInput, match="lone surrogate"):
        extend(ROOT, ["\ud800"])
