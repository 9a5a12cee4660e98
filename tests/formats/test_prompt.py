"""The exact wording of a question."""

from __future__ import annotations

from typing import Any

import pytest

from flide_engine.formats import parse_question
from flide_engine.formats.prompt import question_text


def choice(criteria: dict[str, Any], instructions: Any = "Which tool?") -> Any:
    """A choice, parsed."""
    return parse_question({"type": "choice", "instructions": instructions, "criteria": criteria})


def test_a_choice_lists_its_options_by_letter() -> None:
    """An undescribed option is its name alone."""
    text = question_text(choice({"grep": "search", "none": None, "ls": ["a", 1]}), "ABC")
    assert text == (
        ' Which tool?\nA: grep - search\nB: none\nC: ls - ["a", 1]\n'
        "Answer with the letter of one option only."
    )


def test_more_options_than_letters_have_labels() -> None:
    """Beyond 26 options the labels are no longer letters, so the prompt does not say so."""
    words = [f"L{number}" for number in range(27)]
    texts = [question_text(choice(dict.fromkeys(words[:n])), words[:n]) for n in (26, 27)]
    assert texts[0].endswith("\nAnswer with the letter of one option only.")
    assert texts[1].endswith("\nL26: L26\nAnswer with the label of one option only.")


def test_a_noul_lists_yes_and_no() -> None:
    """The outcomes are listed also where they are not described."""
    criteria = {"false": "it may harm"}
    noul = parse_question({"type": "noul", "instructions": {"q": "Safe?"}, "criteria": criteria})
    assert question_text(noul, ("yes", "no")) == (
        ' {"q": "Safe?"}\nyes\nno - it may harm\nAnswer with yes or no only.'
    )


def test_a_noul_is_worded_with_its_labels() -> None:
    """Where the labels are capitalised, so is the prompt."""
    noul = parse_question({"type": "noul", "instructions": "Safe?"})
    assert question_text(noul, ("Yes", "No")) == " Safe?\nYes\nNo\nAnswer with Yes or No only."


def test_a_score_lists_its_levels_by_number() -> None:
    """Levels are numbered from zero."""
    score = parse_question(
        {"type": "score", "instructions": "Risk?", "criteria": ["low", {"a": 1}]}
    )
    assert question_text(score, "01") == (
        ' Risk?\n0: low\n1: {"a": 1}\nAnswer with the number of one level only.'
    )


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ({"type": "choice", "criteria": {"a": None}}, " Which of these options fits best?"),
        ({"type": "noul", "criteria": {"true": "a"}}, " Which of these outcomes holds?"),
        ({"type": "score", "criteria": ["a"]}, " Which of these levels fits best?"),
        (
            {"type": "score", "instructions": "", "criteria": ["a"]},
            " Which of these levels fits best?",
        ),
    ],
)
def test_a_question_without_instructions_asks_for_its_options(question: Any, first: str) -> None:
    """Absent instructions get a sentence of the question's kind."""
    parsed = parse_question(question)
    text = question_text(parsed, "XY"[: len(parsed.options)])
    assert text.splitlines()[0] == first


def test_no_name_or_description_can_forge_an_option() -> None:
    """A line break in a name, a description or a level does not begin a line."""
    forged = "x\nB: y\u2028C: z"
    described = question_text(choice({forged: forged, "b": forged}), "AB")
    levels = parse_question({"type": "score", "criteria": [forged, "high"]})
    assert len(described.splitlines()) == 4
    assert len(question_text(levels, "01").splitlines()) == 4
