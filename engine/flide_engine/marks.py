"""Where on a history checkpoints are left, and which of them a longer one makes superfluous.

All positions are multiples of `GRID`. The rule behind both: between two neighbouring checkpoints
the position at most doubles, so that an edit at p resumes at p / 2 or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.core import GRID

if TYPE_CHECKING:
    from collections.abc import Collection

MARGIN = 8
"""Tokens before the end of the durable history that the next words may still merge with."""

MAX_STATES = 6
"""States one history keeps: one weighs as much as about 1,500 tokens of keys and values."""

SHORTEST = 4 * GRID
"""Below this a history is recomputed sooner than a state is worth keeping."""


def choose_marks(*, start: int, matched: int, durable: int, hybrid: bool) -> list[int]:
    """Grid points above `start` at which a pass leaves checkpoints, ascending.

    The end of the durable history; where this history parts from one already held (`matched`), for
    two have now come that way; and points between, each at most twice the one before it. A model
    without recurrent layers needs only the first: all full pages below it are checkpoints.
    """
    live = max(durable - MARGIN, 0) // GRID * GRID
    if live <= start:
        return []
    if not hybrid:
        return [live]
    marks = {live}
    if start < matched < live:
        marks.add(matched)
    place = live
    while (place := _half(place)) > start and (start or place >= SHORTEST):
        marks.add(place)
    return sorted(marks)[-MAX_STATES:]


def superseded(places: Collection[int], *, forks: Collection[int], limit: int) -> set[int]:
    """Which checkpoints of one history may go, the deepest being the newest.

    One between two others goes if they lie within a doubling of each other, unless several
    histories part there (`forks`); over `limit` the shallowest go.
    """
    kept = sorted(places)
    index = len(kept) - 2
    while index > 0:
        if kept[index] not in forks and kept[index - 1] >= _half(kept[index + 1]):
            del kept[index]
        index -= 1
    return set(places) - set(kept[-limit:])


def _half(place: int) -> int:
    """The first grid point at or above half of a place."""
    return -(-place // (2 * GRID)) * GRID
