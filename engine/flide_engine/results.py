"""What is asked of an engine, and what comes back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flide_engine.core import Reuse
    from flide_engine.formats import Answer, GrowingText, Text


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request as the System One API counts them."""

    input_tokens: int
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds: text to tokens, tokens to probabilities (waiting included), and both."""

    plan_ms: float
    run_ms: float
    total_ms: float

    @classmethod
    def until_now(cls, began: float, planned: float) -> Timing:
        """Of a call that began and had its tokens at these times of `time.perf_counter`."""
        ended = time.perf_counter()
        return cls(
            plan_ms=1e3 * (planned - began),
            run_ms=1e3 * (ended - planned),
            total_ms=1e3 * (ended - began),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """Answers to one request.

    Attributes:
        answers: one for each question id.
        usage: tokens of the state and of all questions.
        reuse: how many of them were computed, and how many came from a checkpoint.
        timing: of the call; requests answered together share it.
        state_tokens: how many of `usage` are the state's.
    """

    answers: dict[str, Answer]
    usage: Usage
    reuse: Reuse
    timing: Timing
    state_tokens: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of `decide_many`; the fields are those of `Engine.decide`."""

    state: Text | GrowingText
    questions: Mapping[str, Any]
    tenant: str = ""
    durable: int | None = None
    local: str = ""
