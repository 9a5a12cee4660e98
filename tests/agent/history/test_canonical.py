"""The canonical text: one way to write what means the same, two for what does not."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from flide_agent.history import Turn, messages_to_history, system_turn
from flide_engine.formats.text import render
from tests.agent.history.forms import Said, as_anything, json_values, sayings, texts

if TYPE_CHECKING:
    from random import Random

ROLES = ("system", "user", "assistant", "tool")


def text_of(message: object) -> str:
    (turn,) = messages_to_history([message])
    return turn.text


def ids_of(said: Said) -> list[str]:
    return [f"call-{place}" for place in range(max(1, len(said.calls)))][: len(said.calls) or 1]


def written(said: Said, random: Random) -> str:
    ids = ids_of(said) if said.role == "tool" else ids_of(said)[: len(said.calls)]
    return text_of(as_anything(said, random, ids))


class TestMessages:
    @settings(deadline=None)
    @given(said=sayings(ROLES), one=st.randoms(), other=st.randoms())
    def test_equal_messages_have_equal_text(self, said: Said, one: Random, other: Random) -> None:
        """Frameworks, blocks, ids, metadata and the order of keys do not show."""
        assert written(said, one) == written(said, other)

    @settings(deadline=None)
    @given(said=sayings(ROLES), other=sayings(ROLES), random=st.randoms())
    def test_different_messages_have_different_text(
        self, said: Said, other: Said, random: Random
    ) -> None:
        """Nothing that a message says is lost."""
        assume(said != other)

        assert written(said, random) != written(other, random)

    @settings(deadline=None)
    @given(said=sayings(ROLES), random=st.randoms())
    def test_text_is_one_line_of_json(self, said: Said, random: Random) -> None:
        """No content can end the line, so none can pass for a message of its own."""
        text = written(said, random)

        assert text.splitlines(keepends=True) == [text]
        assert json.loads(text)["role"] == said.role

    @settings(deadline=None)
    @given(said=sayings(ROLES), random=st.randoms())
    def test_says_what_was_said(self, said: Said, random: Random) -> None:
        """The line holds the text and the calls themselves."""
        line = json.loads(written(said, random))

        parts = line["content"] if isinstance(line["content"], list) else [line["content"]]
        assert [part for part in parts if isinstance(part, str) and part] == [
            part for part in said.content if isinstance(part, str)
        ]
        assert [(call["name"], call["args"]) for call in line.get("calls", [])] == [
            (name, json.loads(args)) for name, args in said.calls
        ]

    @pytest.mark.parametrize("form", [dict, SimpleNamespace])
    def test_objects_read_like_maps(self, form: Any) -> None:
        """What a client library returns is a message as it is."""
        function = form(name="refund", arguments='{"order": 7}')
        call = form(id="c", type="function", function=function)
        message = form(role="assistant", content=None, tool_calls=[call], refusal=None)

        assert text_of(message) == (
            '{"role":"assistant","content":"","calls":[{"name":"refund","args":{"order":7}}]}\n'
        )

    def test_legacy_function_calls_are_calls(self) -> None:
        """A function's result names the function, where later ones name the call."""
        turns = messages_to_history(
            [
                {"role": "assistant", "function_call": {"name": "pay", "arguments": ""}},
                {"role": "function", "name": "pay", "content": "done"},
            ]
        )

        assert [turn.text for turn in turns] == [
            '{"role":"assistant","content":"","calls":[{"name":"pay","args":{}}]}\n',
            '{"role":"tool","content":"done"}\n',
        ]
        assert [turn.calls for turn in turns] == [("pay",), ()]

    def test_a_function_call_among_the_keyword_arguments_is_a_call(self) -> None:
        """LangChain leaves the legacy form there."""
        call = {"name": "pay", "arguments": "{}"}
        message = AIMessage("", additional_kwargs={"function_call": call})

        assert text_of(message) == text_of({"role": "assistant", "function_call": call})

    def test_custom_tools_take_text(self) -> None:
        """OpenAI's custom tools are called with text that is no JSON."""
        call = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
        line = json.loads(text_of({"role": "assistant", "tool_calls": [call]}))

        assert line["calls"] == [{"name": "shell", "args": "ls -l"}]

    @pytest.mark.parametrize("arguments", [{"a": "x\ny"}, '{"a": "x\ny"}', '{"a": "x\\ny"}'])
    def test_arguments_are_read_as_leniently_as_they_are_run(self, arguments: object) -> None:
        """A line break inside a string is no JSON, but all parsers of arguments take it."""
        call = {"name": "f", "arguments": arguments}
        line = json.loads(text_of({"role": "assistant", "function_call": call}))

        assert line["calls"] == [{"name": "f", "args": {"a": "x\ny"}}]

    @pytest.mark.parametrize(
        "arguments",
        ['{"a":', "[1]", "null", '"{}"', '{"a": NaN}', '{"a": "\\ud800"}', "[" * 10_000],
        ids=lambda arguments: arguments[:8],
    )
    def test_arguments_that_are_no_map_are_kept(self, arguments: str) -> None:
        """A model may write anything for arguments, and whoever judges it must see that."""
        call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
        line = json.loads(text_of({"role": "assistant", "content": "", "tool_calls": [call]}))

        assert line["calls"] == [{"name": "f", "args": arguments}]

    @given(value=st.dictionaries(texts, json_values, min_size=1, max_size=3))
    def test_unknown_blocks_are_kept(self, value: dict[str, Any]) -> None:
        """A block of a kind that is not known is there as it is, its keys sorted."""
        block = {"type": "receipt", "value": value}
        line = json.loads(text_of({"role": "user", "content": ["see", block]}))

        assert line["content"] == ["see", block]

    def test_no_block_passes_for_a_picture(self) -> None:
        """What stands for a picture is itself read as one when it comes in as a block."""
        picture = {"type": "image", "url": "https://example.com/receipt.png"}
        marker = json.loads(text_of({"role": "user", "content": [picture]}))["content"][0]

        assert marker["type"] == "image"
        assert json.loads(text_of({"role": "user", "content": [marker]}))["content"] != [marker]

    def test_bytes_read_like_base64(self) -> None:
        """Some providers give the bytes of a picture."""
        given = {"image": {"format": "png", "source": {"bytes": b"\x00\x10\x83"}}}
        same = {"type": "image_url", "image_url": {"url": "data:image/png;base64,ABCD"}}

        assert text_of(("user", [given])) == text_of(("user", [same]))

    def test_tuples_are_role_and_content(self) -> None:
        """As LangChain takes them."""
        assert text_of(("human", "hi")) == text_of({"role": "user", "content": "hi"})


class TestOtherTurns:
    @given(text=texts.filter(bool))
    def test_strings_are_verbatim(self, text: str) -> None:
        """A string is a turn by itself, whatever it holds."""
        assert messages_to_history([text]) == [Turn(text)]

    def test_empty_string_adds_nothing(self) -> None:
        """It is no turn, so it does not close calls either."""
        call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
        messages = [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            "",
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ]

        assert messages_to_history(messages) == messages_to_history([messages[0], messages[2]])

    @given(value=json_values.filter(lambda value: not isinstance(value, str)))
    def test_values_are_written_as_in_a_state(self, value: Any) -> None:
        """Any other JSON value is a line that reads as the same value does in a state."""
        assume(not isinstance(value, dict) or "role" not in value)

        assert text_of([value]) == render([value]) + "\n"
        assert text_of(value) == render([value])[1:-1] + "\n"

    def test_maps_of_another_type_are_values(self) -> None:
        """An event is no message because it has a type and a content."""
        event = {"type": "payment", "content": "42 EUR"}

        assert text_of(event) == '{"type": "payment", "content": "42 EUR"}\n'

    @given(prompt=texts)
    def test_system_prompt_is_the_system_message(self, prompt: str) -> None:
        """Whether the prompt comes by itself or first among the messages makes no difference."""
        assert [system_turn(prompt)] == messages_to_history([("system", prompt)])
