"""What a given history has in common with a held one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flide_agent.history import Comparison, compare, digest

letters = st.text("abc", max_size=12).map(list)

CASES = {
    "nothing held": ("", "ab", (0, 0)),
    "nothing given": ("ab", "", (0, 0)),
    "the same": ("abc", "abc", (3, 0)),
    "appended": ("abc", "abcde", (3, 0)),
    "rewound": ("abcde", "abc", (3, 0)),
    "edited": ("sabcd", "saXcd", (2, 0)),
    "edited before what remains": ("sabcd", "sXbcd", (1, 0)),
    "summarised": ("sabcdef", "sXefg", (1, 0)),
    "inserted": ("sabcd", "sabXcd", (3, 0)),
    "deleted near the end": ("sabcd", "sabd", (3, 0)),
    "window": ("abcdef", "cdefg", (0, 4)),
    "window behind a kept turn": ("sabcdef", "sdefgh", (1, 3)),
    "window with nothing new": ("sabcdef", "sdef", (1, 3)),
    "window of one turn": ("abcdef", "fg", (0, 0)),
    "window of one turn behind a kept one": ("sabcdef", "sfg", (1, 0)),
    "window of two turns": ("abcdef", "efg", (0, 2)),
    "window with a gap": ("abcdef", "hij", (0, 0)),
    "inside, not at the end": ("abcdef", "cdx", (0, 0)),
    "begins like the window": ("xaxbxc", "xcde", (1, 0)),
    "polling": ("uprprpr", "prprprx", (0, 0)),
    "polled before and after": ("uprabcpr", "prabcprx", (0, 7)),
    "the same turn twice": ("xaa", "aab", (0, 0)),
}


@pytest.mark.parametrize(("held", "given_", "expected"), CASES.values(), ids=CASES)
def test_compares(held: str, given_: str, expected: tuple[int, int]) -> None:
    """Each letter is a turn."""
    assert compare(held, given_) == Comparison(*expected)


@given(held=letters, given_=letters)
def test_is_what_its_rule_says(held: list[str], given_: list[str]) -> None:
    """The rule, tried one length after the other."""
    pairs = list(zip(held, given_, strict=False))
    common = next((n for n, (one, other) in enumerate(pairs) if one != other), len(pairs))
    rest, tail = given_[common:], held[common:]
    lengths = [n for n in range(1, min(len(rest), len(tail)) + 1) if rest[:n] == tail[-n:]]
    overlap = max(lengths, default=0)
    stretch = rest[:overlap]
    repeats = any(stretch[n:] == stretch[:-n] for n in range(1, overlap // 2 + 1))
    expected = 0 if overlap < 2 or repeats else overlap

    assert compare(held, given_) == Comparison(common, expected)


@given(
    turns=st.integers(4, 60),
    kept=st.integers(0, 2),
    size=st.integers(2, 30),
    new=st.integers(0, 5),
)
def test_finds_what_is_new_behind_a_window(turns: int, kept: int, size: int, new: int) -> None:
    """Where no turn comes twice, exactly the new ones remain."""
    held = [digest(f"{place}") for place in range(turns)]
    now = held + [digest(f"new {place}") for place in range(new)]
    size = max(size, new + 2)
    window = now[:kept] + now[max(kept, len(now) - size) :]
    found = compare(held, window)

    assert window[found.common + found.overlap :] == now[turns:]


class Counted(str):
    """A turn that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__ne__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("turns", ["a", "ab", "aab", "abcdefg"])
@pytest.mark.parametrize("last", ["", "x"])
def test_takes_linear_time(turns: str, last: str) -> None:
    """Histories that repeat themselves are compared in a few steps a turn."""
    held: list[Any] = [Counted(turns[place % len(turns)]) for place in range(5_000)]
    Counted.comparisons = 0
    compare(held, [Counted(turn) for turn in (*held[1:], *last)])

    assert Counted.comparisons < 10 * len(held)


def test_a_window_takes_the_time_of_a_window() -> None:
    """However long the history behind it is."""
    held: list[Any] = [Counted(place) for place in range(5_000)]
    Counted.comparisons = 0
    found = compare(held, [*held[-10:], Counted("new")])

    assert found == Comparison(0, 10)
    assert Counted.comparisons < 100
