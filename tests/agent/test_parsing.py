"""JSON as it arrives: what is read of it unchanged, and in which words the rest is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flide_agent import Choice, InvalidInput, Noul, Score, parse_questions, parse_request

NOUL = {"type": "noul", "instructions": "Refund?"}
REQUEST = {"model": "jev-latest", "state": "I was charged twice.", "questions": {"q": NOUL}}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
states = json_values.filter(lambda value: isinstance(value, (str, list, dict)))


UNREADABLE = {
    "empty": (" \n", "the request is empty; JSON was expected."),
    "cut off": (
        '{"model":\n "m"',
        "the request is not valid JSON: Expecting ',' delimiter at line 2, column 5.",
    ),
    "not UTF-8": (
        b'{"a": "\xff"}',
        "the request is not UTF-8 text: byte 0xff at position 7; save it as UTF-8.",
    ),
    "key given twice": (
        '{"state": {"a": 1, "a": 2}}',
        'the request: the key "a" appears twice in one map; keep one of them.',
    ),
    "too deep": ("[" * 100_000, "the request is nested deeper than 200 levels; flatten it."),
    "endless integer": (
        "9" * 5000,
        "the request holds an integer of thousands of digits; quote it.",
    ),
    "not a map": ("null", "the request: null was given, but it must be a map."),
}


def refusal(text: str) -> str | None:
    try:
        parse_request(text)
    except InvalidInput as error:
        return str(error)
    return None


class TestRequest:
    @pytest.mark.parametrize(("text", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
    def test_refuses_what_is_not_json(self, text: str | bytes, sentence: str) -> None:
        """What cannot be read as JSON is refused with the reason."""
        with pytest.raises(InvalidInput) as caught:
            parse_request(text)

        assert str(caught.value) == sentence

    def test_number_too_large_for_a_float_is_refused(self) -> None:
        """1e999 is valid JSON and would silently become infinity."""
        text = json.dumps({**REQUEST, "state": ["?"]}).replace('"?"', "1e999")

        with pytest.raises(InvalidInput, match="inf is not a number in JSON"):
            parse_request(text)

    @given(state=states)
    def test_state_arrives_unchanged(self, state: Any) -> None:
        """Any text, map or array that JSON can hold is the state that was sent."""
        assert parse_request(json.dumps({**REQUEST, "state": state})).state == state

    @given(names=st.lists(st.text(), min_size=1, max_size=5, unique=True))
    def test_option_names_come_back_byte_for_byte(self, names: list[str]) -> None:
        """Option names are neither trimmed nor normalised, and keep their order."""
        asked = {"q": {"type": "choice", "criteria": dict.fromkeys(names)}}
        text = json.dumps({**REQUEST, "questions": asked}, ensure_ascii=False)
        question = parse_request(text).questions["q"]

        assert isinstance(question, Choice)
        assert list(question.criteria) == names

    @given(
        content=st.fixed_dictionaries(
            {},
            optional={"model": json_values, "state": json_values, "assets": json_values}
            | {
                "questions": st.dictionaries(
                    st.text(),
                    json_values
                    | st.fixed_dictionaries(
                        {"type": st.sampled_from(["noul", "choice", "score", "box"])},
                        optional={"instructions": json_values, "criteria": json_values},
                    ),
                    max_size=2,
                )
            },
        )
    )
    def test_whatever_is_wrong_is_one_sentence(self, content: dict[str, Any]) -> None:
        """Any JSON is either read or refused with a single line that ends in a full stop."""
        sentence = refusal(json.dumps(content))

        assert sentence is None or (sentence.isprintable() and sentence.endswith("."))


class TestQuestions:
    def test_reads_a_map_of_questions(self) -> None:
        """A file of questions needs no request around it."""
        assert parse_questions('{"q": {"type": "score", "criteria": ["low"]}}') == {
            "q": Score(criteria=["low"])
        }

    def test_reads_the_questions_of_a_request(self) -> None:
        """Of a whole request only the questions are read."""
        assert parse_questions({"questions": {"q": NOUL}}) == {"q": Noul(instructions="Refund?")}

    @pytest.mark.parametrize("question", [NOUL, Noul(instructions="Refund?")])
    def test_a_question_may_be_called_questions(self, question: Any) -> None:
        """The id "questions" does not make a map of questions a request."""
        assert list(parse_questions({"questions": question, "other": NOUL})) == [
            "questions",
            "other",
        ]

    @pytest.mark.parametrize("wrapped", [False, True])
    def test_names_the_place_as_in_a_request(self, wrapped: bool) -> None:
        """Errors point to `questions.…`, with and without a request around."""
        questions: dict[str, Any] = {"severity": {"type": "score", "criteria": {"0": "low"}}}

        with pytest.raises(InvalidInput, match=r"^questions\.severity\.score\.criteria: a map"):
            parse_questions({"questions": questions} if wrapped else questions)
