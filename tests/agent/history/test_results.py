"""Tool results: in the order of their calls, and paired with them without ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from flide_agent.history import Turn, messages_to_history
from tests.agent.history.forms import Said, as_anything, sayings

if TYPE_CHECKING:
    from random import Random

    from langchain_core.messages import BaseMessage


def calling(*ids: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"id": key, "name": "look", "args": {}} for key in ids])


def results(*ids: str) -> list[BaseMessage]:
    return [ToolMessage(f"of {key}", tool_call_id=key) for key in ids]


def answers(messages: list[Any]) -> list[tuple[str, Any]]:
    """What each result says, and the call that it says it answers."""
    lines = [json.loads(turn.text) for turn in messages_to_history(messages)]
    return [(line["content"], line.get("call", "next")) for line in lines if line["role"] == "tool"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[object], list[int]]:
    """Messages whose results come in order, and places to cut them at."""
    random: Random = draw(st.randoms(use_true_random=False))
    messages: list[object] = []
    for said in draw(st.lists(sayings(), max_size=6)):
        ids = [f"{len(messages)}-{place}" for place in range(len(said.calls))]
        messages.append(as_anything(said, random, ids))
        answered = draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
        for key in sorted(answered):
            result: Said = draw(sayings(("tool",)))
            messages.append(as_anything(result, random, [key]))
    return messages, sorted(draw(st.lists(st.integers(0, len(messages)), max_size=4)))


@settings(deadline=None)
@given(history=histories())
def test_pieces_are_the_whole(history: tuple[list[object], list[int]]) -> None:
    """Turns given one after the other are those given at once."""
    messages, cuts = history
    turns: list[Turn] = []
    for start, end in zip([0, *cuts], [*cuts, len(messages)], strict=True):
        left = turns[-1].calls if turns else ()
        turns += messages_to_history(messages[start:end], calls=left)

    assert turns == messages_to_history(messages)


@given(order=st.permutations(["a", "b", "c"]))
def test_order_of_arrival_does_not_show(order: list[str]) -> None:
    """Parallel results are sorted by their calls, however they came in."""
    assert messages_to_history([calling("a", "b", "c"), *results(*order)]) == messages_to_history(
        [calling("a", "b", "c"), *results("a", "b", "c")]
    )


@given(ids=st.lists(st.text(min_size=1), min_size=3, max_size=3, unique=True))
def test_ids_do_not_show(ids: list[str]) -> None:
    """Calls and results made anew have other ids and the same text."""
    other = [calling("a", "b", "c"), *(ToolMessage("r", tool_call_id=key) for key in "cab")]
    same = [calling(*ids), *(ToolMessage("r", tool_call_id=key) for key in ids)]

    assert [turn.text for turn in messages_to_history(same)] == [
        turn.text for turn in messages_to_history(other)
    ]


def test_a_missing_result_is_skipped() -> None:
    """Where the first calls have no result, those that have one say which call it was."""
    assert answers([calling("a", "b", "c"), *results("b", "c")]) == [("of b", 1), ("of c", 2)]
    assert answers([calling("a", "b", "c"), *results("a", "c")]) == [("of a", "next"), ("of c", 2)]


def test_a_late_result_names_its_call() -> None:
    """Results divided out of order are still paired."""
    first = messages_to_history([calling("a", "b"), *results("b")])
    late = messages_to_history(results("a"), calls=first[-1].calls)

    assert first[-1].calls == ("a", "")
    assert late[0].text == '{"role":"tool","content":"of a"}\n'
    assert late[0].calls == ()


def test_a_result_of_no_call_says_so() -> None:
    """Beside calls that are open, a result of another stands last and answers none of them."""
    assert answers([calling("a", "b"), *results("x", "a")]) == [("of a", "next"), ("of x", None)]


def test_a_second_result_answers_nothing() -> None:
    """A call is answered once."""
    assert answers([calling("a", "b"), *results("a", "a")]) == [("of a", "next"), ("of a", None)]


def test_a_window_begins_with_the_same_results() -> None:
    """Results whose calls have slid out of the window read as they did when these were there."""
    messages = [calling("a", "b", "c"), *results("a", "b", "c"), HumanMessage("thanks")]
    whole = [turn.text for turn in messages_to_history(messages)]

    for start in range(len(messages)):
        window = messages_to_history(messages[start:])
        assert [turn.text for turn in window] == whole[start:]


def test_other_turns_close_calls() -> None:
    """A result after something else is said is paired with nothing."""
    turns = messages_to_history([calling("a"), HumanMessage("wait"), *results("a")])

    assert [turn.calls for turn in turns] == [("a",), (), ()]


def test_calls_without_ids_are_known_by_name() -> None:
    """Some providers have no ids: then results name the tool."""
    messages = [
        {"role": "assistant", "tool_calls": [{"function": {"name": n}} for n in ("f", "g", "f")]},
        {"role": "tool", "name": "g", "content": "of g"},
        {"role": "tool", "name": "f", "content": "of f"},
        {"role": "tool", "name": "f", "content": "of f again"},
    ]

    assert answers(messages) == [("of f", "next"), ("of g", "next"), ("of f again", "next")]
