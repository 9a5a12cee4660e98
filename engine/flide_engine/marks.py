"""Where on a history checkpoints are left, and which of them a longer one makes superfluous.

All positions are multiples of `GRID`. The rule behind both: between two neighbouring checkpoints
the position at most doubles, so that an edit at p resumes at p / 2 or later. Powers of two are the
fewest places that hold it however the history grows, so those are left on the way, and kept.
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


def choose_marks(
    *, start: int, matched: int, durable: int, hybrid: bool, stride: int = GRID
) -> list[int]:
    """Grid points above `start` at which a pass leaves checkpoints, the most wanted first.

    The end of the durable history, and the last multiple of `stride` before it, where lower tiers
    take checkpoints; where this history parts from one already held (`matched`), for two have now
    come that way; and the powers of two between, deepest first. A model without recurrent layers
    needs only the first: all full pages below it are checkpoints.
    """
    live = max(durable - MARGIN, 0) // GRID * GRID
    if live <= start:
        return []
    if not hybrid:
        return [live]
    marks = [live]
    if start < (coarse := live // stride * stride) < live:
        marks.append(coarse)
    if start < matched < live and matched not in marks:
        marks.append(matched)
    place = GRID
    while 2 * place < live:
        place *= 2
    while place > start and (start or place >= SHORTEST):
        if place not in marks:
            marks.append(place)
        place //= 2
    return marks[:MAX_STATES]


def superseded(places: Collection[int], *, forks: Collection[int], limit: int) -> set[int]:
    """Which checkpoints of one history may go, the deepest being the newest.

    One between two others goes if they lie within a doubling of each other, unless it is a power
    of two or several histories part there (`forks`). Over `limit`, which is at least 1, those go
    that take the fewest tokens to compute again, but not the one that the newest went on from.
    """
    kept = sorted(places)
    for index in range(len(kept) - 2, 0, -1):
        place = kept[index]
        stays = place in forks or place & (place - 1) == 0
        if not stays and 2 * kept[index - 1] >= kept[index + 1]:
            del kept[index]
    while len(kept) > limit:
        older = range(max(len(kept) - 2, 1))
        del kept[min(older, key=lambda i: kept[i] - (kept[i - 1] if i else 0))]
    return set(places) - set(kept)
