"""Probabilities become the answers of System One."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flide_engine.formats import Question, answer, parse_question, to_json
from flide_engine.formats.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer

NOUL = parse_question({"type": "noul", "instructions": "Safe?"})


def choice(count: int) -> Question:
    """A choice among a, b, c and so on."""
    return parse_question({"type": "choice", "criteria": {f"o{i}": None for i in range(count)}})


def score(*levels: Any) -> Question:
    """A score over these levels."""
    return parse_question({"type": "score", "criteria": list(levels)})


def array(*values: float) -> npt.NDArray[np.float64]:
    """Probabilities."""
    return np.array(values, dtype=np.float64)


def distributions(least: int, most: int) -> st.SearchStrategy[npt.NDArray[np.float64]]:
    """Any probabilities, ties and certainties among them."""
    weights = st.lists(st.integers(0, 1000), min_size=least, max_size=most)
    return weights.filter(any).map(lambda some: np.array(some, dtype=np.float64) / sum(some))


def test_a_noul_is_the_probability_of_true() -> None:
    """The answer has no other field."""
    assert answer(NOUL, array(0.25, 0.75)) == NoulAnswer(0.25)
    assert to_json(answer(NOUL, array(0.25, 0.75))) == {"type": "noul", "noul": 0.25}


def test_a_choice_names_the_most_probable_option() -> None:
    """Confidence measures the largest probability from even to certain."""
    given_answer = answer(choice(4), array(0.125, 0.625, 0.125, 0.125))
    assert given_answer == ChoiceAnswer(
        "o1", {"o0": 0.125, "o1": 0.625, "o2": 0.125, "o3": 0.125}, 0.5
    )
    assert to_json(given_answer) == {
        "type": "choice",
        "choice": "o1",
        "probabilities": {"o0": 0.125, "o1": 0.625, "o2": 0.125, "o3": 0.125},
        "confidence": 0.5,
    }


def test_a_score_is_the_expected_level() -> None:
    """Levels are keyed by number, and a structured level is shown as JSON."""
    given_answer = answer(score("low", {"a": 1}, ""), array(0.25, 0.5, 0.25))
    assert given_answer == ScoreAnswer(1.0, ("low", '{"a": 1}', ""), (0.25, 0.5, 0.25), 0.25)
    assert to_json(given_answer) == {
        "type": "score",
        "score": 1.0,
        "legend": {"0": "low", "1": '{"a": 1}', "2": ""},
        "probabilities": {"0": 0.25, "1": 0.5, "2": 0.25},
        "confidence": 0.25,
    }


def test_score_confidence_measures_the_spread_about_the_mode() -> None:
    """The spread is compared with that of even levels about their middle, and never below zero."""
    levels = ["a", "b", "c", "d"]
    values = [
        answer(score(*levels), array(*p)) for p in ((0.1, 0.6, 0.2, 0.1), (0.4, 0.1, 0.1, 0.4))
    ]
    assert [value.confidence for value in values if isinstance(value, ScoreAnswer)] == [
        pytest.approx(1 - 0.5 / 1.0),
        0.0,
    ]


@pytest.mark.parametrize("question", [choice(1), score("only")])
def test_the_only_option_is_certain(question: Question) -> None:
    """With one option there is nothing to doubt."""
    assert to_json(answer(question, array(1.0)))["confidence"] == 1.0


@pytest.mark.parametrize("count", [2, 3, 10, 255])
def test_even_options_have_no_confidence(count: int) -> None:
    """Even probabilities give a confidence of zero, not less."""
    probabilities = np.full(count, 1 / count)
    assert to_json(answer(choice(count), probabilities))["confidence"] == 0.0


def test_rounding_is_by_largest_remainder() -> None:
    """Thirds round to a sum of one."""
    rounded = to_json(answer(choice(3), np.full(3, 1 / 3), decimals=2))
    assert rounded["probabilities"] == {"o0": 0.34, "o1": 0.33, "o2": 0.33}
    assert rounded["confidence"] == (0.34 - 1 / 3) / (1 - 1 / 3)


def test_the_choice_survives_a_tie_made_by_rounding() -> None:
    """The option that was most probable is chosen also where rounding makes it equal."""
    rounded = to_json(answer(choice(3), array(0.4401, 0.4402, 0.1197), decimals=2))
    assert (rounded["choice"], rounded["probabilities"]["o0"]) == ("o1", 0.44)


@given(distributions(1, 255), st.integers(0, 6))
def test_rounded_probabilities_sum_to_one(
    probabilities: npt.NDArray[np.float64], decimals: int
) -> None:
    """In units of the last decimal the sum is exact, nothing moves by a unit, the order stays."""
    sent = to_json(answer(choice(len(probabilities)), probabilities, decimals))
    rounded = np.array(list(sent["probabilities"].values()))
    units = np.rint(rounded * 10**decimals)
    assert units.sum() == 10**decimals
    assert (abs(rounded - probabilities) < 10.0**-decimals).all()
    assert (rounded == units / 10**decimals).all()
    best = int(sent["choice"][1:])
    assert best == probabilities.argmax()
    assert rounded[best] == rounded.max()
    assert (np.diff(rounded[np.argsort(-probabilities, kind="stable")]) <= 0).all()


@given(distributions(2, 10), st.none() | st.integers(1, 4))
def test_score_and_confidence_follow_from_what_is_sent(
    probabilities: npt.NDArray[np.float64], decimals: int | None
) -> None:
    """A reader of the answer can compute its score and confidence from its probabilities."""
    count = len(probabilities)
    sent = json.loads(
        json.dumps(to_json(answer(score(*"abcdefghij"[:count]), probabilities, decimals)))
    )
    shown = [sent["probabilities"][str(level)] for level in range(count)]
    mode = shown.index(max(shown))
    spread = sum(p * abs(level - mode) for level, p in enumerate(shown))
    even = sum(abs(level - (count - 1) / 2) for level in range(count)) / count
    assert sent["score"] == pytest.approx(sum(level * p for level, p in enumerate(shown)))
    assert sent["confidence"] == pytest.approx(max(0.0, 1 - spread / even), abs=1e-12)
    assert 0 <= sent["confidence"] <= 1
