"""Requests in the wire format: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import ValidationError

from flide_agent import (
    Choice,
    InvalidInput,
    Noul,
    NoulCriteria,
    Score,
    parse_request,
)

NOUL = {"type": "noul", "instructions": "Refund?"}
REQUEST = {"model": "jev-latest", "state": "I was charged twice.", "questions": {"q": NOUL}}
TYPES = '"noul" (yes or no), "choice" (one of several options) or "score" (ordered levels)'


def asking(question: object) -> dict[str, Any]:
    return {**REQUEST, "questions": {"q": question}}


def choice(criteria: object) -> dict[str, Any]:
    return asking({"type": "choice", "criteria": criteria})


def score(criteria: object) -> dict[str, Any]:
    return asking({"type": "score", "criteria": criteria})


def noul(**fields: object) -> dict[str, Any]:
    return asking({"type": "noul", **fields})


def without(field: str) -> dict[str, Any]:
    return {key: value for key, value in REQUEST.items() if key != field}


ACCEPTED = {
    "noul with instructions": noul(instructions="Refund?"),
    "noul with null criteria": noul(instructions="Refund?", criteria=None),
    "noul with one outcome": noul(criteria={"false": "They only ask"}),
    "noul with a null outcome": noul(criteria={"true": {"examples": ["refund me"]}, "false": None}),
    "one option": choice({"billing": None}),
    "255 options": choice({f"queue {i}": None for i in range(255)}),
    "structured options": choice({"billing": {"owns": ["refunds"]}, "sales": ["pricing", None]}),
    "one level": score(["calm"]),
    "ten levels": score([f"level {i}" for i in range(10)]),
    "structured levels": score([{"label": "calm"}, ["angry", 2]]),
    "structured instructions": asking({**NOUL, "instructions": {"task": "Decide."}}),
    "object state": {**REQUEST, "state": {"plan": "pro", "tickets": None}},
    "array state": {**REQUEST, "state": ["charged", 2, True]},
    "unknown fields": {**asking({**NOUL, "hint": 1}), "seed": 7, "x_trace": None},
    "no assets": {**REQUEST, "assets": None},
    "unusual ids": {
        **REQUEST,
        "questions": dict.fromkeys(["q.2", "with space", "질문", "🎯"], NOUL),
    },
}

REFUSED = {
    "no model": (without("model"), 'model: it is missing; name one, such as "jev-latest".'),
    "empty model": (
        {**REQUEST, "model": ""},
        'model: the text "" was given, but it must be a name.',
    ),
    "no state": (
        without("state"),
        "state: it is missing; give the text, map or array that the questions are about.",
    ),
    "null state": (
        {**REQUEST, "state": None},
        "state: null was given, but it must be text, a map or an array.",
    ),
    "number state": (
        {**REQUEST, "state": 5},
        "state: the number 5 was given, but it must be text, a map or an array.",
    ),
    "NaN": (
        {**REQUEST, "state": {"a": [1, {"b c": float("nan")}]}},
        'state: nan is not a number in JSON (at a[1]."b c"); use null.',
    ),
    "infinity": (
        {**REQUEST, "state": [float("-inf")]},
        "state: -inf is not a number in JSON (at [0]); use null.",
    ),
    "lone surrogate": (
        {**REQUEST, "state": "\ud83d"},
        "state: the lone surrogate \\ud83d is half a character; write the whole one or drop it.",
    ),
    "lone surrogate in a key": (
        noul(instructions={"\ud83d": 1}),
        "questions.q.noul.instructions: the lone surrogate \\ud83d is half a character; "
        "write the whole one or drop it.",
    ),
    "lone surrogate in an option": (
        choice({"\udfff": None}),
        "questions.q.choice.criteria: the lone surrogate \\udfff is half a character; "
        "write the whole one or drop it.",
    ),
    "key that is no text": (
        {**REQUEST, "state": {"a": {1: 2}}},
        "state: the number 1 is not text, as the keys of a map must be (at a); quote it.",
    ),
    "Python object": (
        {**REQUEST, "state": {"tags": {"a"}}},
        "state: a Python set is not JSON (at tags); convert it first.",
    ),
    "no questions": (
        without("questions"),
        "questions: it is missing; give a map from id to question.",
    ),
    "empty questions": (
        {**REQUEST, "questions": {}},
        "questions: the map is empty, but at least one question must be asked.",
    ),
    "list of questions": (
        {**REQUEST, "questions": [NOUL]},
        "questions: an array was given, but questions are a map from id to question.",
    ),
    "empty id": (
        {**REQUEST, "questions": {"": NOUL}},
        'questions: the id "" is empty; give that question a name.',
    ),
    "question that is no map": (
        asking("Refund?"),
        'questions.q: the text "Refund?" was given, but a question is a map with a "type".',
    ),
    "no type": (asking({"instructions": "?"}), f'questions.q: "type" is missing; it is {TYPES}.'),
    "type boolean": (
        {**REQUEST, "questions": {"is it?": {"type": "boolean"}}},
        f'questions."is it?": the text "boolean" is not a question type; use {TYPES}.',
    ),
    "box": (
        asking({"type": "box", "instructions": "the dog"}),
        'questions.q: the type "box" locates things in images, which this engine does not read.',
    ),
    "noul that asks nothing": (
        noul(criteria={"true": None}),
        "questions.q.noul: it asks nothing; give instructions, or describe an outcome in criteria.",
    ),
    "noul with another outcome": (
        noul(criteria={"yes": "a refund"}),
        'questions.q.noul.criteria: the text "yes" is no outcome; '
        'describe "true", "false" or both.',
    ),
    "noul with criteria in an array": (
        noul(criteria=["yes", "no"]),
        "questions.q.noul.criteria: an array was given, but the outcomes must be a map "
        'with "true", "false" or both.',
    ),
    "choice without criteria": (
        asking({"type": "choice"}),
        "questions.q.choice.criteria: it is missing; give a map from option to description, "
        'such as {"low": null, "high": null}.',
    ),
    "no options": (
        choice({}),
        "questions.q.choice.criteria: 0 options were given, but a choice has 1 to 255.",
    ),
    "256 options": (
        choice({str(i): None for i in range(256)}),
        "questions.q.choice.criteria: 256 options were given, but a choice has 1 to 255.",
    ),
    "options in an array": (
        choice(["billing", "sales"]),
        "questions.q.choice.criteria: an array was given, but options must be a map from option to "
        'description (null for none), such as {"low": null, "high": "above 100"}.',
    ),
    "option described by a number": (
        choice({"billing": 1}),
        "questions.q.choice.criteria.billing: the number 1 was given, "
        "but it must be text, a map or an array.",
    ),
    "score map": (
        score({"0": "calm", "1": "angry"}),
        "questions.q.score.criteria: a map was given, but levels must be an ordered array "
        'such as ["low", "high"].',
    ),
    "null level": (
        score(["calm", None]),
        "questions.q.score.criteria[1]: null was given, but it must be text, a map or an array.",
    ),
    "no levels": (
        score([]),
        "questions.q.score.criteria: 0 levels were given, but a score has 1 to 10.",
    ),
    "eleven levels": (
        score(["x"] * 11),
        "questions.q.score.criteria: 11 levels were given, but a score has 1 to 10.",
    ),
    "images": (
        {**REQUEST, "assets": {"photo": {"type": "image"}}},
        "assets: images are not read by this engine; describe them in the state instead.",
    ),
}


@pytest.mark.parametrize("request_", ACCEPTED.values(), ids=ACCEPTED)
def test_accepts(request_: dict[str, Any]) -> None:
    """Everything that System One documents is read, and nothing of it is lost."""
    parsed = parse_request(json.dumps(request_))

    assert parsed == parse_request(request_)
    assert parsed.state == request_["state"]
    assert list(parsed.questions) == list(request_["questions"])


@pytest.mark.parametrize(("request_", "sentence"), REFUSED.values(), ids=REFUSED)
def test_refuses_in_one_sentence(request_: dict[str, Any], sentence: str) -> None:
    """A broken rule is named with its place, what was given and the way out."""
    with pytest.raises(InvalidInput) as caught:
        parse_request(request_)

    assert str(caught.value) == sentence


def test_depth_is_limited_in_python_values_too() -> None:
    """A state that nests 200 levels is read, one level more is refused."""
    state: list[Any] = []
    for _ in range(200):
        state = [state]

    assert parse_request({**REQUEST, "state": state}).state == state
    with pytest.raises(InvalidInput, match="deeper than 200 levels"):
        parse_request({**REQUEST, "state": [state]})


def test_keeps_the_report_of_every_fault() -> None:
    """The cause lists all broken rules, for a server that answers with a list."""
    with pytest.raises(InvalidInput) as caught:
        parse_request({**score({"0": "calm"}), "state": None})

    assert isinstance(caught.value.__cause__, ValidationError)
    assert [fault["loc"] for fault in caught.value.__cause__.errors()] == [
        ("state",),
        ("questions", "q", "score", "criteria"),
    ]


def test_takes_question_objects() -> None:
    """Questions may be built in Python, and any mapping may hold the request."""
    questions = {
        "a": Noul(criteria=NoulCriteria(true="They want money back")),
        "b": Choice(criteria={"billing": None}),
        "c": Score(criteria=["calm", "angry"]),
    }

    request_ = MappingProxyType({**REQUEST, "questions": questions})

    assert parse_request(request_).questions == questions
