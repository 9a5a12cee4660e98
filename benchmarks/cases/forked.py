"""The figures of every case that forks one state and asks transformers each question alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.report import Figure
from benchmarks.timing import TOLERANCE

if TYPE_CHECKING:
    from benchmarks.timing import Measured
    from flide_engine import Request


def against_alone(
    case: str, request: Request, measured: Measured, *, at_least: float
) -> list[Figure]:
    """Speed against tokens saved.

    Args:
        case: its name.
        request: what was asked.
        measured: with the contenders "forked" and "alone".
        at_least: how much of the ratio of tokens the speed-up should reach.
    """
    asked = sum(len(branch.token_ids) for branch in request.branches)
    forked = len(request.trunk) + asked
    alone = len(request.branches) * len(request.trunk) + asked
    ratio = alone / forked
    seconds = measured.seconds
    speed_up = seconds["alone"] / seconds["forked"]
    return [
        Figure(case, "state", len(request.trunk), "tokens"),
        Figure(case, "average question", round(asked / len(request.branches)), "tokens"),
        Figure(case, "tokens, alone / forked", ratio, "x"),
        Figure(case, "forked", seconds["forked"], "s"),
        Figure(case, "transformers, alone", seconds["alone"], "s"),
        Figure(case, "speed-up", speed_up, "x"),
        Figure(case, "speed-up / token ratio", speed_up / ratio, "x", at_least=at_least),
        agreement(case, measured),
    ]


def agreement(case: str, measured: Measured) -> Figure:
    """How far apart the answers were."""
    return Figure(case, "probability difference", measured.difference, "", at_most=TOLERANCE)
