"""Heads: one for each history and each of its beginnings."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import assume, given
from hypothesis import strategies as st

from flide_agent.history import ROOT, digest, extend
from tests.agent.history.forms import texts

turns = st.lists(texts, max_size=6)


@given(one=turns, other=turns)
def test_different_histories_have_different_heads(one: list[str], other: list[str]) -> None:
    """No two lists of turns meet, not even where their texts join to the same."""
    assume(one != other)

    assert [ROOT, *extend(ROOT, one)][-1] != [ROOT, *extend(ROOT, other)][-1]


@given(text=texts.filter(lambda text: len(text) > 1), data=st.data())
def test_where_a_turn_ends_counts(text: str, data: st.DataObject) -> None:
    """A text cut elsewhere is another history."""
    cut = data.draw(st.integers(1, len(text) - 1))

    assert extend(ROOT, [text[:cut], text[cut:]])[-1] not in extend(ROOT, ["", text, ""])


@given(before=turns, after=turns)
def test_every_beginning_has_a_head(before: list[str], after: list[str]) -> None:
    """Extending a head is extending the history that it names."""
    heads = extend(ROOT, before)

    assert heads + extend([ROOT, *heads][-1], after) == extend(ROOT, before + after)


@given(text=texts, other=texts)
def test_digest_names_a_turn_by_itself(text: str, other: str) -> None:
    """It depends on the text and nothing else, and is no head."""
    assert (digest(text) == digest(other)) == (text == other)
    assert digest(text) not in extend(ROOT, [text])


def test_importing_loads_neither_frameworks_nor_engine() -> None:
    """Messages are known by their shape."""
    code = "import sys, flide_agent.history; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not {"langchain_core", "flide_engine", "torch"} & set(done.stdout.split())
