"""Answers in System One form, from the probabilities of a question's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from flide_engine.formats.text import render

if TYPE_CHECKING:
    from flide_engine.formats.questions import Question

Probabilities: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """The answer to a yes-or-no question.

    Attributes:
        noul: the probability of true.
    """

    type: ClassVar[Literal["noul"]] = "noul"
    noul: float


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The answer to a choice.

    Attributes:
        choice: the name of the most probable option.
        probabilities: of every option by name, in the order of the question.
        confidence: 0 when all options are equally probable, 1 when one is certain.
    """

    type: ClassVar[Literal["choice"]] = "choice"
    choice: str
    probabilities: dict[str, float]
    confidence: float


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The answer to a score.

    Attributes:
        score: the expected level.
        legend: the description of every level, a structured one as JSON.
        probabilities: of every level.
        confidence: 1 when one level is certain, 0 when the spread about the most probable level is
            that of equally probable levels about their middle, or wider.
    """

    type: ClassVar[Literal["score"]] = "score"
    score: float
    legend: tuple[str, ...]
    probabilities: tuple[float, ...]
    confidence: float


Answer: TypeAlias = NoulAnswer | ChoiceAnswer | ScoreAnswer


def answer(question: Question, probabilities: Probabilities, decimals: int | None = None) -> Answer:
    """The answer that these probabilities are.

    Args:
        question: what was asked.
        probabilities: `[n]`, one for each option, with sum 1.
        decimals: round the probabilities to so many decimals, to a sum of exactly 1, and derive the
            rest from what is sent. None keeps them as they are.
    """
    assert probabilities.shape == (len(question.options),)
    best = int(probabilities.argmax())
    if decimals is not None:
        probabilities = _round(probabilities, decimals)
    values = tuple(probabilities.tolist())
    if question.kind == "noul":
        return NoulAnswer(values[0])
    if question.kind == "choice":
        names = [option.name for option in question.options]
        by_name = dict(zip(names, values, strict=True))
        return ChoiceAnswer(names[best], by_name, _choice_confidence(probabilities))
    return ScoreAnswer(
        score=float(np.arange(len(values)) @ probabilities),
        legend=tuple(render(option.description) for option in question.options),
        probabilities=values,
        confidence=_score_confidence(probabilities),
    )


def to_json(answer: Answer) -> dict[str, Any]:
    """The answer as System One sends it; the levels of a score are keyed "0", "1", and so on."""
    if isinstance(answer, NoulAnswer):
        return {"type": answer.type, "noul": answer.noul}
    if isinstance(answer, ChoiceAnswer):
        return {
            "type": answer.type,
            "choice": answer.choice,
            "probabilities": dict(answer.probabilities),
            "confidence": answer.confidence,
        }
    return {
        "type": answer.type,
        "score": answer.score,
        "legend": _by_level(answer.legend),
        "probabilities": _by_level(answer.probabilities),
        "confidence": answer.confidence,
    }


def _by_level(values: tuple[Any, ...]) -> dict[str, Any]:
    return {str(level): value for level, value in enumerate(values)}


def _round(probabilities: Probabilities, decimals: int) -> Probabilities:
    # By largest remainder: the sum stays 1 and no option overtakes a more probable one.
    units = 10**decimals
    exact = probabilities * units
    whole = np.floor(exact)
    missing = units - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:missing]] += 1
    rounded: Probabilities = whole / units
    return rounded


def _choice_confidence(probabilities: Probabilities) -> float:
    count = len(probabilities)
    if count == 1:
        return 1.0
    even = 1 / count
    return max(0.0, (float(probabilities.max()) - even) / (1 - even))


def _score_confidence(probabilities: Probabilities) -> float:
    count = len(probabilities)
    if count == 1:
        return 1.0
    levels = np.arange(count)
    spread = float(probabilities @ abs(levels - probabilities.argmax()))
    widest = float(abs(levels - (count - 1) / 2).mean())
    return max(0.0, 1 - spread / widest)
