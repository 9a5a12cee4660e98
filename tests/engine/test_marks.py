"""Where checkpoints are left: few, and close enough that an edit at p resumes at p / 2."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flide_engine.core import GRID
from flide_engine.marks import MARGIN, MAX_STATES, SHORTEST, choose_marks, superseded

lengths = st.integers(0, 40_000)
grid_points = st.integers(0, 300).map(lambda n: n * GRID)
places = st.sets(st.integers(1, 300).map(lambda n: n * GRID), max_size=14)


def marks(start: int, durable: int, matched: int = 0) -> list[int]:
    """Marks of a hybrid."""
    return choose_marks(start=start, matched=matched, durable=durable, hybrid=True)


@given(start=grid_points, matched=grid_points, durable=lengths)
def test_marks_lie_on_the_grid_between_start_and_the_durable_end(
    start: int, matched: int, durable: int
) -> None:
    """Distinct grid points above the start; the first is the last one before the margin."""
    chosen = marks(start, durable, matched)
    live = max(durable - MARGIN, 0) // GRID * GRID
    assert chosen[:1] == ([live] if live > start else [])
    assert len(set(chosen)) == len(chosen) <= MAX_STATES
    assert all(start < mark <= live and mark % GRID == 0 for mark in chosen)


@given(start=grid_points, matched=grid_points, durable=lengths)
def test_where_a_history_parts_from_a_known_one_is_marked(
    start: int, matched: int, durable: int
) -> None:
    """However many marks there are, the place where histories part is among the first two."""
    chosen = marks(start, durable, matched)
    assert (matched in chosen[:2]) or not chosen or not start < matched < chosen[0]


@given(start=grid_points, durable=lengths)
@example(start=GRID, durable=700)
def test_positions_at_most_double_from_one_mark_to_the_next(start: int, durable: int) -> None:
    """From the start, or for a fresh history from the shortest worth keeping, up to the end."""
    chosen = sorted(marks(start, durable))
    every = [start, *chosen] if start else chosen
    if len(chosen) == MAX_STATES:
        every = chosen  # there were more doublings than states: the shallowest are left out
    assert all(above <= 2 * below for below, above in pairwise(every))
    assert start or len(chosen) in (0, MAX_STATES) or chosen[0] < 2 * SHORTEST


@given(start=grid_points, matched=grid_points, durable=lengths)
def test_a_model_without_recurrent_layers_needs_only_the_end(
    start: int, matched: int, durable: int
) -> None:
    """There every page below the one mark is a checkpoint."""
    chosen = choose_marks(start=start, matched=matched, durable=durable, hybrid=False)
    assert chosen == marks(start, durable, matched)[:1]


@pytest.mark.parametrize("start", range(0, 1025, GRID))
def test_every_small_history_ends(start: int) -> None:
    """For every short length and every matched place there is an answer."""
    for durable in range(0, 1100, 3):
        for matched in range(0, 1100, GRID):
            marks(start, durable, matched)


def after_thinning(kept: set[int], forks: set[int], limit: int = MAX_STATES) -> list[int]:
    """What stays, ascending."""
    return sorted(kept - superseded(kept, forks=forks, limit=limit))


@given(kept=places, forks=places, limit=st.integers(1, 8))
def test_thinning_keeps_the_newest_and_at_most_the_limit(
    kept: set[int], forks: set[int], limit: int
) -> None:
    """Only what was there goes; the deepest never does."""
    gone = superseded(kept, forks=forks, limit=limit)
    assert gone <= kept
    assert len(kept - gone) <= limit
    assert not kept or max(kept) not in gone


@given(kept=places, forks=places)
def test_thinning_never_opens_more_than_a_doubling(kept: set[int], forks: set[int]) -> None:
    """Below the limit a checkpoint goes only from between two within a doubling; forks stay."""
    stays = after_thinning(kept, forks, limit=len(kept) + 1)
    assert kept & forks <= set(stays)
    assert stays[:1] == sorted(kept)[:1]
    before = set(pairwise(sorted(kept)))
    assert all(above <= 2 * below or (below, above) in before for below, above in pairwise(stays))


@given(kept=places, forks=places)
def test_thinning_twice_is_thinning_once(kept: set[int], forks: set[int]) -> None:
    """What stays is not superseded."""
    stays = after_thinning(kept, forks)
    assert after_thinning(set(stays), forks) == stays


def test_over_the_limit_a_fork_goes_only_when_it_saves_the_fewest_tokens() -> None:
    """The end of an opening of 8,000 tokens outlives a checkpoint at 512; one near another dies."""
    powers = [512, 1024, 2048, 4096]
    opening = 125 * GRID
    assert after_thinning({*powers, opening, 15_040, 16_384}, {opening}) == [
        1024, 2048, 4096, opening, 15_040, 16_384,
    ]  # fmt: skip
    near = 4096 + GRID
    assert near not in after_thinning({*powers, near, 8192, 16_384}, {near})


@given(
    first=st.one_of(st.integers(200, 2000), st.integers(2000, 2100)),
    steps=st.lists(st.integers(37, 500), min_size=20, max_size=40),
    pending=st.integers(0, 90),
)
def test_growing_to_16k_an_edit_at_p_resumes_at_half_of_p(
    first: int, steps: list[int], pending: int
) -> None:
    """After each step at most six checkpoints are kept, and any edit at 512 or later is cheap."""
    kept: set[int] = set()
    length = first
    index = 0
    while length <= 16_384:
        kept |= set(marks(max(kept, default=0), length - pending))
        kept = set(after_thinning(kept, set()))
        assert len(kept) <= MAX_STATES
        ends = sorted(kept)
        assert ends[0] <= 512
        # The dearest edit before each checkpoint; after the last one, the end of the history.
        assert all(2 * below >= above - 1 for below, above in pairwise(ends) if above > 512)
        assert length < 512 or 2 * ends[-1] >= length
        length += steps[index % len(steps)]
        index += 1
