"""Blocks of several providers: an answer is the same whichever model gave it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from flide_agent.history import messages_to_history

ARGS = {"order": 7, "by": {"name": "Amara", "copy": True}}
CALL = {"id": "a", "name": "look", "args": ARGS}
OTHER = {"id": "b", "name": "pay", "args": {}}
SAID = [{"type": "text", "text": "I look."}]

# What several providers' chat models return for the same answer, and a dict without LangChain.
PROVIDERS: dict[str, Any] = {
    "chat completions": AIMessage("I look.", tool_calls=[CALL, OTHER]),
    "anthropic": AIMessage(
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            *SAID,
            {"type": "tool_use", "id": "a", "name": "look", "input": ARGS},
            {"type": "tool_use", "id": "b", "name": "pay", "input": {}},
        ],
        tool_calls=[CALL, OTHER],
    ),
    "anthropic, redacted": AIMessage(
        [{"type": "redacted_thinking", "data": "x"}, *SAID], tool_calls=[CALL, OTHER]
    ),
    "responses": AIMessage(
        [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "text", "text": "I look.", "annotations": [], "id": "msg_1"},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "a",
                "name": "look",
                "arguments": json.dumps(ARGS),
            },
            {
                "type": "function_call",
                "id": "fc_2",
                "call_id": "b",
                "name": "pay",
                "arguments": "{}",
            },
        ],
        tool_calls=[CALL, OTHER],
    ),
    "bedrock": AIMessage(
        [
            {"type": "reasoning_content", "reasoning_content": {"text": "Hm."}},
            *SAID,
            {"type": "tool_use", "id": "a", "name": "look", "input": ARGS},
            {"type": "tool_use", "id": "b", "name": "pay", "input": {}},
        ],
        tool_calls=[CALL, OTHER],
    ),
    "standard blocks": AIMessage(
        content_blocks=[
            {"type": "reasoning", "reasoning": "Hm."},
            {"type": "text", "text": "I look."},
            {"type": "tool_call", "id": "a", "name": "look", "args": ARGS},
            {"type": "tool_call", "id": "b", "name": "pay", "args": {}},
        ]
    ),
    "calls in the content only": {
        "role": "assistant",
        "content": [
            {"text": "I look."},
            {"toolUse": {"toolUseId": "a", "name": "look", "input": ARGS}},
            {"type": "tool_use", "id": "b", "name": "pay", "input": {}},
        ],
    },
    "calls in the content without ids": AIMessage(
        [
            *SAID,
            {"type": "function_call", "name": "look", "args": ARGS},
            {"type": "function_call", "name": "pay", "args": {}},
        ],
        tool_calls=[CALL, OTHER],
    ),
    "calls as keyword arguments": AIMessage(
        "I look.",
        additional_kwargs={
            "tool_calls": [
                {"id": "a", "function": {"name": "look", "arguments": json.dumps(ARGS)}},
                {"id": "b", "function": {"name": "pay", "arguments": "{}"}},
            ]
        },
    ),
    "streamed": AIMessageChunk(
        content="I look.",
        tool_call_chunks=[
            {"id": "a", "name": "look", "args": json.dumps(ARGS), "index": 0},
            {"id": "b", "name": "pay", "args": "{}", "index": 1},
        ],
    ),
}


def text_of(message: object) -> str:
    (turn,) = messages_to_history([message])
    return turn.text


@pytest.mark.parametrize("message", PROVIDERS.values(), ids=PROVIDERS)
def test_a_fallback_to_another_model_does_not_show(message: Any) -> None:
    """One answer is one text, whichever provider's blocks it comes in."""
    assert text_of(message) == (
        '{"role":"assistant","content":"I look.","calls":['
        '{"name":"look","args":{"by":{"copy":true,"name":"Amara"},"order":7}},'
        '{"name":"pay","args":{}}]}\n'
    )
    assert messages_to_history([message])[0].calls == ("a", "b")


MEDIA: dict[str, list[dict[str, Any]]] = {
    "image": [
        {"type": "image_url", "id": "lc_1", "image_url": {"url": "data:image/png;base64,AB"}},
        {"type": "image", "base64": "AB", "mime_type": "image/png", "id": "lc_1"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AB"}},
    ],
    "audio": [
        {"type": "input_audio", "input_audio": {"data": "AB", "format": "wav"}},
        {"type": "audio", "base64": "AB", "mime_type": "audio/wav"},
    ],
    "file": [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file_id": "file-1", "id": "lc_1"},
        {"type": "file", "source_type": "id", "id": "file-1"},
    ],
    "video": [{"type": "video", "url": "https://example.com/v", "id": "lc_1"}],
}


@pytest.mark.parametrize(("kind", "blocks"), MEDIA.items(), ids=MEDIA)
def test_media_are_told_apart_by_what_they_show(kind: str, blocks: list[dict[str, Any]]) -> None:
    """The same picture has one mark in every form; another has another."""
    marks = [json.loads(text_of(HumanMessage([block])))["content"] for block in blocks]
    other = json.loads(text_of(HumanMessage([{"type": kind, "url": "https://example.com/x"}])))

    assert all(mark == marks[0] for mark in marks)
    assert marks[0][0]["type"] == other["content"][0]["type"] == kind
    assert marks[0] != other["content"]
