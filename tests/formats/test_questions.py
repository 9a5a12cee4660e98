"""The System One form of questions, taken leniently and refused clearly."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from flide_engine.errors import InvalidRequest
from flide_engine.formats import Option, Question, parse_question


def noul(**fields: Any) -> dict[str, Any]:
    """A yes-or-no question in System One form."""
    return {"type": "noul", **fields}


def choice(criteria: Any, **fields: Any) -> dict[str, Any]:
    """A choice in System One form."""
    return {"type": "choice", "criteria": criteria, **fields}


def score(criteria: Any, **fields: Any) -> dict[str, Any]:
    """A score in System One form."""
    return {"type": "score", "criteria": criteria, **fields}


@pytest.mark.parametrize(
    ("fields", "true", "false"),
    [
        ({"instructions": "Safe?"}, None, None),
        ({"instructions": "Safe?", "criteria": None}, None, None),
        ({"instructions": "Safe?", "criteria": {}}, None, None),
        ({"criteria": {"true": "safe"}}, "safe", None),
        ({"criteria": {"false": {"risk": 1}, "true": None}}, None, {"risk": 1}),
    ],
)
def test_a_noul_has_two_outcomes(fields: dict[str, Any], true: Any, false: Any) -> None:
    """Criteria may be absent, null, one-sided or two-sided; the options are true, then false."""
    question = parse_question(noul(**fields))
    assert question.options == (Option("true", true), Option("false", false))
    assert question.instructions == fields.get("instructions")


@pytest.mark.parametrize("count", [1, 2, 26, 255])
def test_a_choice_has_up_to_255_options(count: int) -> None:
    """Options keep their order; a description may be null and instructions absent."""
    names = [f"option {number}" for number in range(count)]
    question = parse_question(choice(dict.fromkeys(names)))
    assert question == Question("choice", None, tuple(Option(name) for name in names))


@pytest.mark.parametrize("name", ["", " ", "e\u0301", "\u212b", "a\nB: b", "\U0001f600"])
def test_an_option_name_is_kept_byte_for_byte(name: str) -> None:
    """Any string may name an option and nothing is done to it."""
    assert parse_question(choice({name: "x"})).options == (Option(name, "x"),)


@pytest.mark.parametrize("count", [1, 2, 10])
def test_a_score_has_up_to_ten_levels(count: int) -> None:
    """Levels are numbered from zero; a level may be a string, an object or an array."""
    levels: list[Any] = ["low", {"as": "object"}, ["as", "array"], *map(str, range(7))]
    question = parse_question(score(levels[:count], instructions=["how", "far"]))
    assert [option.name for option in question.options] == [str(n) for n in range(count)]
    assert [option.description for option in question.options] == levels[:count]


def test_an_object_with_these_attributes_is_a_question() -> None:
    """A model of another package passes without being known here."""
    criteria = SimpleNamespace(true="yes", false=None)
    given = SimpleNamespace(type="noul", instructions=None, criteria=criteria)
    assert parse_question(given) == parse_question(noul(criteria={"true": "yes"}))


def test_a_question_comes_back_as_it_is() -> None:
    """A parsed question needs no parsing."""
    question = parse_question(noul(instructions="Safe?"))
    assert parse_question(question) is question


def test_a_read_only_mapping_is_a_mapping() -> None:
    """Any mapping will do, not only a dict."""

    class Frozen(Mapping[str, Any]):
        def __init__(self, items: dict[str, Any]) -> None:
            self._items = items

        def __getitem__(self, key: str) -> Any:
            return self._items[key]

        def __iter__(self) -> Any:
            return iter(self._items)

        def __len__(self) -> int:
            return len(self._items)

    assert parse_question(Frozen(choice(Frozen({"a": None})))).options == (Option("a"),)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "has no type"),
        (None, "has no type"),
        ("noul", "has no type"),
        ({"type": "box"}, "'box' cannot be answered here"),
        ({"type": "boolean"}, "'boolean' cannot be answered here"),
        ({"type": ["noul"]}, "cannot be answered here"),
        (noul(), "asks nothing"),
        (noul(criteria={}), "asks nothing"),
        (noul(instructions=""), "asks nothing"),
        (noul(criteria={"true": None, "false": None}), "asks nothing"),
        (noul(instructions="a", criteria={"yes": "b"}), "only true and false"),
        (noul(instructions="a", criteria={True: "b"}), "only true and false"),
        (noul(instructions="a", criteria=["b", "c"]), "use an object"),
        (noul(instructions=3), "instructions is 3"),
        (choice(None), "use an object"),
        (choice(["a", "b"]), "use an object"),
        (choice({}), "1 to 255 options, not 0"),
        (choice(dict.fromkeys(map(str, range(256)))), "1 to 255 options, not 256"),
        (choice({1: "x"}), "name is 1"),
        (choice({"a": 1}), "the description of 'a' is 1"),
        (choice({"a": "\ud800"}), "lone surrogate"),
        (choice({"\ud800": None}), "lone surrogate"),
        (choice({"a": None}, instructions=float("nan")), "instructions is nan"),
        (score(None), "use an array"),
        (score("low"), "use an array"),
        (score({"0": "low"}), "use an array"),
        (score([]), "1 to 10 levels, not 0"),
        (score(["x"] * 11), "1 to 10 levels, not 11"),
        (score(["low", None]), "level is null"),
        (score(["low", 5]), "the description of '1' is 5"),
        (score([{"a": float("inf")}]), "Out of range float"),
    ],
)
def test_a_broken_rule_is_one_clear_sentence(value: object, said: str) -> None:
    """The error begins with the place and says the rule, at a bearable length."""
    with pytest.raises(InvalidRequest) as caught:
        parse_question(value, "questions.q1")
    message = str(caught.value)
    assert message.startswith("questions.q1: ")
    assert said in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("box", (Option("a"),)),
        ("noul", (Option("false"), Option("true"))),
        ("choice", (Option("a"), Option("a"))),
    ],
)
def test_a_question_made_by_hand_obeys_the_same_rules(kind: Any, options: Any) -> None:
    """The rules hold however a question comes about."""
    with pytest.raises(InvalidRequest):
        Question(kind, "What?", options)
