"""Rounds: what fails is not kept, what is equal is computed once, what cannot fit is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flide_engine.backend import make_backend
from flide_engine.core import Branch, Request
from flide_engine.errors import NonFiniteError, RequestTooLarge
from flide_engine.runner import Runner
from tests.support.models import load
from tests.support.rounds import LABELS, tokens
from tests.support.serving import serve

if TYPE_CHECKING:
    from tests.engine.conftest import Checkpoint

POISON = 7
"""A token whose embedding is NaN."""


@pytest.fixture
def runner(checkpoint: Checkpoint) -> Runner:
    """A runner on a model that one token breaks."""
    model = load(checkpoint.directory, torch.float32)
    model.embedding[POISON] = float("nan")
    # Tied heads would make a label of it; it is never one here.
    backend = make_backend(model, 1 << 26, 4096)
    return Runner(model, backend.storage, backend.pool, 4096, backend.execute)


def request_of(rng: np.random.Generator, length: int, branches: int, broken: bool) -> Request:
    """A random request, broken in the middle of its state or not at all."""
    trunk, questions = (np.where(t == POISON, 0, t) for t in (tokens(rng, length), tokens(rng, 9)))
    if broken:
        trunk[length // 3] = POISON
    labels = LABELS[LABELS != POISON]
    return Request(trunk, tuple(Branch(questions, labels) for _ in range(branches)))


@pytest.mark.parametrize("branches", [0, 2])
def test_what_is_not_finite_is_an_error_and_never_kept(runner: Runner, branches: int) -> None:
    """Also of a state that nobody asked about; the sound request beside it is kept."""
    rng = np.random.default_rng(branches)
    sound, broken = (request_of(rng, 200, branches, broken) for broken in (False, True))
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        serve(runner, [sound, broken])
    use = runner.pool.use()
    assert (use.pages, use.blocks, use.pins) == (3, 3, 0)
    assert serve(runner, [sound])[0].reuse.reused_tokens == 192
    with pytest.raises(NonFiniteError):
        serve(runner, [broken])
    assert runner.pool.use().blocks == 3


def test_equal_states_of_a_tenant_are_computed_once(runner: Runner) -> None:
    """The second pays for its questions only; another tenant's pays for all."""
    rng = np.random.default_rng(3)
    first = request_of(rng, 130, 1, False)
    twin, foreign = request_of(rng, 130, 2, False), replace(first, tenant="other")
    twin = replace(twin, trunk=first.trunk)
    outcomes = serve(runner, [first, twin, foreign])
    assert [outcome.reuse.new_tokens for outcome in outcomes] == [139, 18, 139]
    assert [outcome.reuse.source for outcome in outcomes] == ["none", "round", "none"]
    assert [len(outcome.probabilities) for outcome in outcomes] == [1, 2, 1]
    assert np.allclose(outcomes[0].probabilities[0], outcomes[2].probabilities[0], atol=1e-5)


@pytest.mark.parametrize("branches", [0, 1])
def test_what_outgrows_the_context_is_refused(runner: Runner, branches: int) -> None:
    """The sentence says how long it is, and how long it may be."""
    longest = runner.model.max_positions
    asked = request_of(np.random.default_rng(4), longest + 1 - 9 * branches, branches, False)
    with pytest.raises(RequestTooLarge, match=rf"{longest + 1} tokens, .* {longest}"):
        serve(runner, [asked])
    assert runner.pool.use().pages == 0
