"""The promise: an answer is the one the model gives to that question alone, whatever else runs."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flide_engine.core import GRID, Branch
from flide_engine.pack import Trunk
from tests.support.models import load, random_model, save
from tests.support.rounds import (
    LABELS,
    Pages,
    alone,
    poisoned_storage,
    prompts,
    run,
    tokens,
    trunk,
)
from tests.support.truth import transformers_logprobs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.conftest import Checkpoint

OURS = 1e-10
TRUTH = 1e-9

LAYOUTS: dict[str, list[tuple[int, list[int]]]] = {
    "one_token_trunk": [(1, [3, 70])],
    "below_a_page": [(63, [1, 64, 65])],
    "a_page": [(64, [2])],
    "above_a_page": [(65, [5, 5, 5]), (2, [127])],
    "two_pages": [(127, [9]), (128, [1, 2]), (129, [3])],
    "no_reads": [(200, [])],
    "reads_beside_none": [(130, []), (66, [7, 31])],
    "many_trunks": [(1, [1]), (191, [4]), (3, [65, 1]), (64, [64]), (100, [])],
    "sixty_branches": [(70, list(range(1, 61)))],
    "long": [(400, [33, 190])],
    "after_it": [(257, [2, 128]), (320, [6])],
}


def rng_of(name: str) -> np.random.Generator:
    """Fresh numbers for every layout, the same in every run."""
    return np.random.default_rng(list(name.encode()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_a_round_gives_the_answers_of_the_model(
    checkpoint: Checkpoint, layout: str
) -> None:
    """Forked and batched in float64: equal to transformers in float64, and to ours asked alone."""
    rng = rng_of(layout)
    pages = Pages(rng)
    trunks = [trunk(rng, pages, length, branches) for length, branches in LAYOUTS[layout]]
    decoder = checkpoint.float64
    logprobs = run(decoder, poisoned_storage(decoder), trunks)
    wanted = prompts(trunks)
    assert logprobs.shape == (len(wanted), len(LABELS))
    for row, prompt in zip(logprobs, wanted, strict=True):
        assert (row - checkpoint.truth.logprobs(prompt)).abs().max() < TRUTH
        cut = int(rng.integers(1, len(prompt)))
        assert (row - alone(decoder, prompt, cut)).abs().max() < OURS


@pytest.mark.parametrize("layout", ["many_trunks", "long", "after_it"])
def test_float32_is_within_twice_the_error_of_transformers(
    checkpoint: Checkpoint, layout: str
) -> None:
    """Our largest float32 error over a round is at most twice that of transformers."""
    rng = rng_of(layout)
    pages = Pages(rng)
    trunks = [trunk(rng, pages, length, branches) for length, branches in LAYOUTS[layout]]
    logprobs = run(checkpoint.float32, poisoned_storage(checkpoint.float32), trunks)
    ours, theirs = [], []
    for row, prompt in zip(logprobs, prompts(trunks), strict=True):
        truth = checkpoint.truth.logprobs(prompt)
        ours.append((row - truth).abs().max())
        theirs.append((transformers_logprobs(checkpoint.transformers, prompt) - truth).abs().max())
    assert max(ours) <= 2 * max(theirs)


@pytest.mark.parametrize("length", [65, 128, 200, 321])
def test_a_trunk_resumed_at_any_grid_point_gives_the_answers_of_a_fresh_one(
    checkpoint: Checkpoint, length: int
) -> None:
    """One pass leaves all grid points; from each of them, beside a fresh trunk, nothing changes."""
    rng = np.random.default_rng(length)
    pages = Pages(rng)
    first = trunk(rng, pages, length, [5, 70])
    first.saves = {place: place // GRID for place in range(GRID, length, GRID)}
    decoder = checkpoint.float64
    storage = poisoned_storage(decoder)
    fresh = run(decoder, storage, [first])
    for place, state in first.saves.items():
        own = pages.take(length - place)
        resumed = replace(
            first,
            pages=[*first.pages[: place // GRID], *own],
            start=place,
            state_in=state,
            saves={},
        )
        beside = trunk(rng, pages, 1, [3])
        logprobs = run(decoder, storage, [beside, resumed])
        assert (logprobs[1:] - fresh).abs().max() < OURS
    for row, prompt in zip(fresh, prompts([first]), strict=True):
        assert (row - checkpoint.truth.logprobs(prompt)).abs().max() < TRUTH


@pytest.mark.parametrize("start", [0, 64, 128])
def test_a_branch_may_hang_off_an_earlier_grid_point(checkpoint: Checkpoint, start: int) -> None:
    """A branch that forks inside the trunk never sees what comes after, whoever saved its state."""
    rng = np.random.default_rng(start)
    pages = Pages(rng)
    whole = trunk(rng, pages, 230, [4])
    whole.saves = {64: 3, 128: 5}
    decoder = checkpoint.float64
    storage = poisoned_storage(decoder)
    run(decoder, storage, [whole])
    branches = [
        Branch(tokens(rng, count), LABELS, fork)
        for count, fork in ((9, 128), (65, 192), (2, None), (66, 128), (1, 192))
    ]
    own = [*whole.pages[: start // GRID], *pages.take(230 - start)]
    state = whole.saves.get(start, -1)
    saves = {192: 7} if start else {}
    forked = Trunk(whole.token_ids, branches, own, start, state, saves)
    logprobs = run(decoder, storage, [forked])
    for row, prompt in zip(logprobs, prompts([forked]), strict=True):
        assert (row - checkpoint.truth.logprobs(prompt)).abs().max() < TRUTH


def test_a_siblings_or_neighbours_text_changes_no_bit(checkpoint: Checkpoint) -> None:
    """At equal lengths, other tokens elsewhere in the round leave an answer's bits alone."""
    rng = np.random.default_rng(7)
    pages = Pages(rng)
    mine = trunk(rng, pages, 90, [11, 30])
    other = trunk(rng, pages, 75, [8])
    decoder = checkpoint.float32
    before = run(decoder, poisoned_storage(decoder), [other, mine])
    sibling = replace(mine, branches=[mine.branches[0], Branch(tokens(rng, 30), LABELS)])
    neighbour = replace(other, token_ids=tokens(rng, 75), branches=[Branch(tokens(rng, 8), LABELS)])
    after = run(decoder, poisoned_storage(decoder), [neighbour, sibling])
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0], after[0])
    assert not torch.equal(before[2], after[2])


def test_the_text_part_of_a_multimodal_checkpoint_is_the_text_model(tmp_path: Path) -> None:
    """Both layouts of the names give the same bits."""
    model = random_model("qwen3_5", "tied")
    text = load(save(model, tmp_path / "text"), torch.float64)
    whole = load(save(model, tmp_path / "whole", multimodal=True), torch.float64)
    prompt = tokens(np.random.default_rng(3), 81)
    assert torch.equal(alone(text, prompt, 70), alone(whole, prompt, 70))


def test_bfloat16_holds_states_in_float32(checkpoint: Checkpoint) -> None:
    """Products in bfloat16 stay near float32, and checkpoints keep float32 states."""
    decoder = load(checkpoint.directory, torch.bfloat16)
    storage = poisoned_storage(decoder)
    assert all(state.dtype == torch.float32 for state in storage.recurrent)
    rng = np.random.default_rng(11)
    asked = trunk(rng, Pages(rng), 100, [20, 40])
    logprobs = run(decoder, storage, [asked])
    assert logprobs.dtype == torch.float32
    exact = run(checkpoint.float64, poisoned_storage(checkpoint.float64), [asked])
    rounded = deepcopy(checkpoint.transformers).bfloat16()
    theirs = max(
        (transformers_logprobs(rounded, prompt).double() - row).abs().max()
        for prompt, row in zip(prompts([asked]), exact, strict=True)
    )
    assert (logprobs.double() - exact).abs().max() <= 2 * theirs
