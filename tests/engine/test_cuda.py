"""The same promises on a GPU, through captured graphs and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flide_engine.arrays import Capacity
from flide_engine.executors import GraphExecutor
from flide_engine.kernels.fork_attention.triton_kernel import tile_rows
from flide_engine.storage import Storage
from tests.engine.test_exactness import LAYOUTS, rng_of
from tests.support.models import VOCABULARY, load
from tests.support.rounds import NUM_PAGES, NUM_STATES, Pages, prompts, trunk
from tests.support.truth import transformers_logprobs

if TYPE_CHECKING:
    from tests.engine.conftest import Checkpoint

pytestmark = pytest.mark.gpu

CAPACITY = Capacity(tokens=700, pages=8, slots=6, branches=12, labels=12 * VOCABULARY, saves=4)
"""Holds some of the layouts: the rest run without a graph."""


def executor(checkpoint: Checkpoint, dtype: torch.dtype) -> GraphExecutor:
    """On memory full of NaN."""
    decoder = load(checkpoint.directory, dtype, "cuda")
    storage = Storage(
        decoder.layout,
        num_pages=NUM_PAGES,
        num_states=NUM_STATES,
        dtype=dtype,
        device=torch.device("cuda"),
    )
    for tensor in (*storage.keys, *storage.values, *storage.recurrent, *storage.windows):
        tensor.fill_(float("nan"))
    layout = decoder.layout
    rows = tile_rows(layout.heads // layout.kv_heads, layout.head_dim, dtype)
    return GraphExecutor(decoder, storage, rows, [CAPACITY])


def test_every_layout_is_within_twice_the_float32_error_of_transformers(
    checkpoint: Checkpoint,
) -> None:
    """All layouts one after the other, in the same graph where they fit, twice."""
    run = executor(checkpoint, torch.float32)
    for name in [*LAYOUTS, *LAYOUTS]:
        rng = rng_of(name)
        pages = Pages(rng)
        trunks = [trunk(rng, pages, length, branches) for length, branches in LAYOUTS[name]]
        found = run.start(trunks)()
        ours, theirs = [0.0], [1e-6]
        for row, prompt in zip(found, prompts(trunks), strict=False):
            truth = checkpoint.truth.logprobs(prompt)
            ours.append(float((torch.from_numpy(row) - truth).abs().max()))
            alone = transformers_logprobs(checkpoint.transformers, prompt)
            theirs.append(float((alone - truth).abs().max()))
        assert max(ours) <= 2 * max(theirs), name
    assert len(run._graphs) == 1


def test_a_resumed_trunk_gives_the_answers_of_a_fresh_one(checkpoint: Checkpoint) -> None:
    """From every grid point that one pass left, in one graph."""
    run = executor(checkpoint, torch.float32)
    rng = np.random.default_rng(5)
    pages = Pages(rng)
    first = trunk(rng, pages, 300, [5, 70])
    first.saves = {64: 1, 128: 3, 256: 2}
    fresh = np.stack(run.start([first])())
    for place, state in first.saves.items():
        own = [*first.pages[: place // 64], *pages.take(300 - place)]
        resumed = type(first)(first.token_ids, first.branches, own, place, state)
        assert np.abs(np.stack(run.start([resumed])()) - fresh).max() < 1e-4
    assert len(run._graphs) == 1
