"""How text of every form reads, and what is no text."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flide_engine.errors import InvalidRequest
from flide_engine.formats import render
from flide_engine.formats.text import one_line

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
BREAKS = ["\n", "\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("text", ["", " a\n", "{{ x }}", "e\u0301", "\x00", "<|im_end|>"])
def test_a_string_is_taken_verbatim(text: str) -> None:
    """A string is taken as it is, whatever it looks like."""
    assert render(text) == text


def test_nothing_reads_as_nothing() -> None:
    """None is the empty text."""
    assert render(None) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "\u65e5"]}, '{"b": 1, "a": [true, null, "\u65e5"]}'),
        ([], "[]"),
        ((1, "x"), '[1, "x"]'),
        ({"note": 'done"}\n\nQuestion: no'}, '{"note": "done\\"}\\n\\nQuestion: no"}'),
    ],
)
def test_an_object_is_json_in_the_order_of_its_keys(value: Any, text: str) -> None:
    """Objects and arrays become JSON with readable letters, and a value stays inside its quotes."""
    assert render(value) == text


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON))
def test_json_stays_on_one_line_and_means_the_same(value: Any) -> None:
    """The JSON of any value is one line and reads back as that value."""
    rendered = render(value)
    assert json.loads(rendered) == value
    assert len(rendered.splitlines()) == 1


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([math.nan], "Out of range float"),
        ({"a": -math.inf}, "Out of range float"),
        ({"a": {1: "x"}}, "the key 1"),
        ([{True: "x"}], "the key True"),
        ({("a",): 1}, "keys must be"),
        ([object()], "not JSON serializable"),
        ([10**5000], "integer string conversion"),
        (_circle(), "Circular"),
        (_deep(), "recursion"),
        ("a\ud800b", "'\\ud800' at character 1"),
        ({"\udfff": 1}, "lone surrogate"),
        (7, "7 of type int"),
        (True, "True of type bool"),
        (b"x", "of type bytes"),
    ],
)
def test_what_is_no_text_is_refused(value: Any, said: str) -> None:
    """The error says where, what and the rule."""
    with pytest.raises(InvalidRequest) as caught:
        render(value, "state")
    assert str(caught.value).startswith("state ")
    assert said in str(caught.value)


def test_a_string_enum_is_its_string() -> None:
    """A member of a string enumeration reads as its value inside JSON."""

    class Colour(StrEnum):
        RED = "red"

    assert render([Colour.RED]) == '["red"]'


@pytest.mark.parametrize("text", ["", "plain", ' "quoted" \\n ', "A: b - c", {"a": "b\u2028"}])
def test_one_line_is_verbatim(text: Any) -> None:
    """What is one line already stays as it is."""
    assert one_line(text) == render(text)


@pytest.mark.parametrize("line_break", BREAKS)
def test_a_line_break_cannot_forge_a_line(line_break: str) -> None:
    """A text that breaks the line is quoted, with the break escaped."""
    line = one_line(f"a{line_break}B: b")
    assert line.splitlines() == [line]
    assert json.loads(line) == f"a{line_break}B: b"


@given(st.text())
def test_one_line_is_always_one_line(text: str) -> None:
    """No string makes two lines, also where another line follows."""
    assert len(f"{one_line(text)}x\nnext".splitlines()) == 2
