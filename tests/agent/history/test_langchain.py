"""LangChain's messages: what of them is written, and what never shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    ToolMessage,
    add_notification_metadata,
    convert_to_messages,
    convert_to_openai_messages,
    message_to_dict,
)

from flide_agent.history import messages_to_history

ARGS = {"order": 7, "by": {"name": "Amara", "copy": True}}
CALL = {"id": "a", "name": "look", "args": ARGS}
OTHER = {"id": "b", "name": "pay", "args": {}}
SAID = [{"type": "text", "text": "I look."}]


def text_of(message: object) -> str:
    (turn,) = messages_to_history([message])
    return turn.text


NOT_WRITTEN: dict[str, dict[str, Any]] = {
    "id": {"id": "run-1"},
    "usage": {"usage_metadata": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}},
    "response metadata": {"response_metadata": {"model_name": "m", "logprobs": [0.5]}},
    "keyword arguments": {"additional_kwargs": {"reasoning_content": "Hm.", "lc_source": "x"}},
    "the agent's name": {"name": "refunds"},
}


@pytest.mark.parametrize("metadata", NOT_WRITTEN.values(), ids=NOT_WRITTEN)
def test_metadata_do_not_show(metadata: dict[str, Any]) -> None:
    """What happened to a message is not what it says."""
    assert text_of(AIMessage("Done.", **metadata)) == text_of(AIMessage("Done."))


def test_artifact_and_name_of_a_result_do_not_show() -> None:
    """An artifact is not for the model, and the call has the tool's name."""
    result = ToolMessage("r", tool_call_id="a", name="look", artifact={"rows": object()})

    assert text_of(result) == '{"role":"tool","content":"r"}\n'


def test_only_errors_have_a_status() -> None:
    """A result has succeeded unless it says otherwise, as where no status is known."""
    failed = ToolMessage("r", tool_call_id="a", status="error")

    assert text_of(failed) == '{"role":"tool","content":"r","status":"error"}\n'


def test_a_user_has_a_name() -> None:
    """The user's name is given by whoever writes the message, so two users are told apart."""
    assert text_of(HumanMessage("hi", name="amara")) != text_of(HumanMessage("hi", name="bo"))


SAME_ROLE: dict[str, list[Any]] = {
    "user": [
        HumanMessage("x"),
        HumanMessageChunk(content="x"),
        ChatMessage(content="x", role="user"),
        ("human", "x"),
    ],
    "assistant": [
        AIMessage("x"),
        AIMessageChunk(content="x"),
        ChatMessage(content="x", role="ai"),
        message_to_dict(ChatMessage(content="x", role="ai")),
        ("ai", "x"),
    ],
    "system": [SystemMessage("x"), ("developer", "x"), *convert_to_messages([("developer", "x")])],
    "tool": [ToolMessage("x", tool_call_id="a"), FunctionMessage(content="x", name="f")],
}


@pytest.mark.parametrize(("role", "messages"), SAME_ROLE.items(), ids=SAME_ROLE)
def test_roles_have_one_name(role: str, messages: list[Any]) -> None:
    """Every name that a role goes by is written as one."""
    assert {text_of(message) for message in messages} == {f'{{"role":"{role}","content":"x"}}\n'}


CONTENTS: dict[str, Any] = {
    "string": "See this.",
    "block": [{"type": "text", "text": "See this."}],
    "cut": ["See", {"type": "text", "text": " this", "cache_control": {"type": "ephemeral"}}, "."],
    "with nothing between": ["See", "", {"type": "text", "text": ""}, " this."],
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("kind", [HumanMessage, SystemMessage, AIMessage])
def test_text_is_text_however_it_is_cut(kind: type[BaseMessage], content: Any) -> None:
    """A string, a block and adjacent blocks of the same text are the same."""
    assert json.loads(text_of(kind(content)))["content"] == "See this."


REFUSALS = {
    "keyword": AIMessage("", additional_kwargs={"refusal": "I cannot."}),
    "block": AIMessage([{"type": "refusal", "refusal": "I cannot."}]),
    "blocks": AIMessage([{"type": "refusal", "refusal": part} for part in ("I ", "cannot.")]),
    "dict": {"role": "assistant", "content": None, "refusal": "I cannot."},
}


@pytest.mark.parametrize("message", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_kept(message: Any) -> None:
    """That the model refused, and how, is what was said; and it is not the same as saying it."""
    assert text_of(message) == '{"role":"assistant","content":"","refusal":"I cannot."}\n'
    assert text_of(message) != text_of(AIMessage("I cannot."))


def test_a_call_that_cannot_be_read_is_a_call() -> None:
    """It is written as the model wrote it, and a result may answer it."""
    bad = {"id": "a", "name": "look", "args": '{"order"', "error": "cut off"}
    message = AIMessage("", tool_calls=[OTHER], invalid_tool_calls=[bad])
    raw = [
        {"id": "a", "function": {"name": "look", "arguments": '{"order"'}},
        {"id": "b", "function": {"name": "pay", "arguments": "{}"}},
    ]

    assert json.loads(text_of(message))["calls"][1] == {"name": "look", "args": '{"order"'}
    assert messages_to_history([message])[0].calls == ("b", "a")
    assert text_of({"role": "assistant", "content": "", "tool_calls": raw}) == text_of(message)


def test_a_call_in_the_content_only_is_seen() -> None:
    """No call hides from a judge behind a list that lacks it."""
    hidden = {"type": "tool_use", "id": "c", "name": "wipe", "input": {}}
    line = json.loads(text_of(AIMessage([hidden], tool_calls=[OTHER])))

    assert [call["name"] for call in line["calls"]] == ["pay", "wipe"]


def test_an_edited_call_is_the_one_that_is_run() -> None:
    """A reviewer edits the list of calls; the provider's block keeps what the model wrote."""
    block = {"type": "tool_use", "id": "b", "name": "pay", "input": {"sum": 1000}}
    line = json.loads(text_of(AIMessage([block], tool_calls=[{**OTHER, "args": {"sum": 10}}])))

    assert line["calls"] == [{"name": "pay", "args": {"sum": 10}}]


def test_openai_form_is_the_same() -> None:
    """A caller who keeps the history without LangChain has the same one."""
    messages = [
        SystemMessage([*SAID]),
        HumanMessage("hi", name="amara"),
        AIMessage("", tool_calls=[CALL, OTHER]),
        ToolMessage("r", tool_call_id="a"),
        ToolMessage("s", tool_call_id="b"),
        AIMessage([*SAID]),
    ]
    forms = [convert_to_openai_messages(messages), [message_to_dict(m) for m in messages]]

    assert all(messages_to_history(form) == messages_to_history(messages) for form in forms)


def test_a_summary_is_marked() -> None:
    """What LangChain says about where a message comes from is a hint, and is not written."""
    plain = HumanMessage("Before: a refund.")
    summary = add_notification_metadata(plain, source="summarization")
    other = add_notification_metadata(plain, source="async_subagent")
    turns = messages_to_history([plain, summary, message_to_dict(summary), other])

    assert [turn.summary for turn in turns] == [False, True, True, False]
    assert len({turn.text for turn in turns}) == 1
