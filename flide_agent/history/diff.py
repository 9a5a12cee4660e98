"""What two histories have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROOF = 2
"""Turns in a row that must be equal: one alone, such as "ok", proves nothing."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a given history goes on from a held one.

    Attributes:
        common: leading turns that are equal in both.
        overlap: turns that follow them in what was given and are the last ones of what is held;
            0 if there are none for certain.
    """

    common: int
    overlap: int


def compare(held: Sequence[str], given: Sequence[str]) -> Comparison:
    """Compare a held history with a given one, in linear time.

    `given[common + overlap:]` is new. With an overlap, `given` is a window: it lacks the turns
    `held[common:len(held) - overlap]`.

    The overlap is the longest stretch that follows the common turns in `given` and ends `held`. It
    counts only if it is certain, that is, if it

    - is at least two turns long, and
    - does not repeat itself from beginning to end: when an agent polls, the same turns follow each
      other again and again, and how many of them are new cannot be known.

    A window from which everything held has slid out has no overlap, nor has a history that was
    edited or summarised. But a history with turns deleted right after the common ones looks like a
    window behind them, which digests cannot tell apart.

    Args:
        held: the digest of each turn held.
        given: the digest of each turn given.
    """
    common = _common(held, given)
    rest = given[common:]
    tail = held[common:][-len(rest) :] if rest else []
    # The separator is no digest, so what ends the tail and begins the rest stays on its own side.
    borders = _borders([*rest, "", *tail])
    overlap = borders[-1]
    period = overlap - borders[overlap - 1] if overlap else 0
    certain = overlap >= _PROOF and 2 * period > overlap
    return Comparison(common, overlap if certain else 0)


def _common(held: Sequence[str], given: Sequence[str]) -> int:
    pairs = zip(held, given, strict=False)
    shorter = min(len(held), len(given))
    return next((place for place, (one, other) in enumerate(pairs) if one != other), shorter)


def _borders(turns: Sequence[str]) -> list[int]:
    """For each beginning of the turns, its longest border: what both begins it and ends it."""
    borders = [0] * len(turns)
    length = 0
    for place in range(1, len(turns)):
        while length and turns[place] != turns[length]:
            length = borders[length - 1]
        length += turns[place] == turns[length]
        borders[place] = length
    return borders
