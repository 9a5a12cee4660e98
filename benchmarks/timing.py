"""Ways to the same answers, first compared and then timed in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.console import Console

TOLERANCE = 1e-3
"""Probabilities further apart than this are other answers, and their speed says nothing."""

Answers = Sequence[npt.NDArray[np.float64]]

console = Console(stderr=True, highlight=False)


class AnswersDiffer(Exception):
    """Two contenders do not answer alike, so neither is timed."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to the answers.

    Attributes:
        name: for people.
        answer: what is timed; gives the probabilities of every question.
        prepare: what must be so before each time, untimed.
    """

    name: str
    answer: Callable[[], Answers]
    prepare: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Measured:
    """What a comparison found.

    Attributes:
        seconds: the fastest repeat of each contender, by name.
        difference: the largest between two contenders' probabilities.
    """

    seconds: dict[str, float]
    difference: float


def measure(title: str, contenders: Sequence[Contender], repeats: int) -> Measured:
    """Compare all answers, then time the contenders in turn, so that a slow minute meets all.

    The comparison is also everyone's warm-up.

    Raises:
        AnswersDiffer: one disagrees with the first by more than `TOLERANCE`.
    """
    difference = _compare(title, contenders)
    console.print(f"{title}: answers agree, largest difference of a probability {difference:.1e}")
    fastest = {contender.name: float("inf") for contender in contenders}
    for repeat in range(1, repeats + 1):
        taken = []
        for contender in contenders:
            contender.prepare()
            began = time.perf_counter()
            contender.answer()
            seconds = time.perf_counter() - began
            fastest[contender.name] = min(fastest[contender.name], seconds)
            taken.append(f"{contender.name} {seconds:.3f} s")
        console.print(f"{title}: repeat {repeat} of {repeats}: {', '.join(taken)}")
    return Measured(fastest, difference)


def _compare(title: str, contenders: Sequence[Contender]) -> float:
    expected: Answers | None = None
    largest = 0.0
    for contender in contenders:
        console.print(f"{title}: answers of {contender.name}")
        contender.prepare()
        found = contender.answer()
        expected = found if expected is None else expected
        apart = max(float(abs(p - q).max()) for p, q in zip(expected, found, strict=True))
        # Also refuses NaN, which is apart from everything.
        if not apart <= TOLERANCE:
            raise AnswersDiffer(
                f"{title}: a probability of {contender.name} is {apart:.2g} away from that of "
                f"{contenders[0].name}, and {TOLERANCE:g} is allowed"
            )
        largest = max(largest, apart)
    return largest
