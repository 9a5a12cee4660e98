"""The same promises on a GPU, through captured graphs and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flide_engine.arrays import Capacity
from flide_engine.core import Branch, Request
from flide_engine.executors import GraphExecutor
from flide_engine.kernels.fork_attention.triton_kernel import tile_rows
from flide_engine.pool import Pool
from flide_engine.runner import Runner
from flide_engine.scheduler import Scheduler
from flide_engine.storage import Storage
from tests.engine.test_exactness import LAYOUTS, rng_of
from tests.support.models import VOCABULARY, load
from tests.support.rounds import LABELS, NUM_PAGES, NUM_STATES, Pages, prompts, tokens, trunk
from tests.support.truth import transformers_logprobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_engine.executors import LogProbabilities
    from flide_engine.pack import Trunk
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


def test_the_largest_float32_error_is_within_twice_that_of_transformers(
    checkpoint: Checkpoint,
) -> None:
    """Over all layouts one after the other, in the same graph where they fit, twice.

    The error of one row is chance: a layout has few, so the largest of all is what counts.
    """
    run = executor(checkpoint, torch.float32)
    ours, theirs = [], []
    for name in [*LAYOUTS, *LAYOUTS]:
        rng = rng_of(name)
        pages = Pages(rng)
        trunks = [trunk(rng, pages, length, branches) for length, branches in LAYOUTS[name]]
        for row, prompt in zip(run.start(trunks)(), prompts(trunks), strict=True):
            truth = checkpoint.truth.logprobs(prompt)
            ours.append(float((torch.from_numpy(row) - truth).abs().max()))
            alone = transformers_logprobs(checkpoint.transformers, prompt)
            theirs.append(float((alone - truth).abs().max()))
    assert max(ours) <= 2 * max(theirs)
    assert len(run._graphs) == 1


def test_warmed_up_graphs_answer_as_others_do(checkpoint: Checkpoint) -> None:
    """Kernels compiled ahead are launched, and a graph captured ahead is replayed."""
    rng = np.random.default_rng(3)
    trunks = [trunk(rng, Pages(rng), 100, [5, 70])]
    cold, warm = executor(checkpoint, torch.float32), executor(checkpoint, torch.float32)
    small = Capacity(tokens=400, pages=8, slots=4, branches=12, labels=12 * VOCABULARY, saves=4)
    warm.capacities = cold.capacities = [small, CAPACITY]
    told: list[tuple[int, int]] = []
    warm.warm_up(lambda done, total: told.append((done, total)))
    assert told[-1] == (1, 1)
    assert list(warm._graphs) == [small]
    for ours, others in zip(warm.start(trunks)(), cold.start(trunks)(), strict=True):
        assert np.array_equal(ours, others)


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


class Counting:
    """Counts the rounds that are under way together."""

    def __init__(self, run: GraphExecutor) -> None:
        self.run, self.depth = run, run.depth
        self.now = self.most = 0

    def start(self, trunks: Sequence[Trunk]) -> Callable[[], list[LogProbabilities]]:
        """Start a round."""
        self.now += 1
        self.most = max(self.most, self.now)
        pending = self.run.start(trunks)

        def read() -> list[LogProbabilities]:
            self.now -= 1
            return pending()

        return read


def test_rounds_under_way_together_give_the_answers_of_each_alone(checkpoint: Checkpoint) -> None:
    """With a graph and without, on histories that share openings."""
    run = executor(checkpoint, torch.float32)
    layout = run.storage.layout
    sizes = layout.page_bytes(torch.float32), layout.state_bytes(torch.float32)
    pool = Pool(
        num_pages=NUM_PAGES,
        num_states=NUM_STATES if sizes[1] else 0,
        page_bytes=sizes[0],
        state_bytes=sizes[1],
        budget_bytes=1 << 40,
        cost=run.model.cost,
    )
    rng = np.random.default_rng(11)
    openings = [tokens(rng, length) for length in (100, 300, 420)]
    asks = []
    for _ in range(80):
        opening = openings[rng.integers(3)]
        more, *asked = (tokens(rng, int(n)) for n in rng.integers(1, 90, 1 + rng.integers(4)))
        history = np.concatenate([opening[: rng.integers(1, 421)], more])
        asks.append(Request(history, tuple(Branch(ids, LABELS) for ids in asked)))
    counting = Counting(run)
    scheduler = Scheduler(Runner(run.model, run.storage, pool, 600, counting))
    together = scheduler.run(asks)
    assert counting.most == 2
    for request, outcome in zip(asks, together, strict=True):
        pool.clear()
        (alone,) = scheduler.run([request])
        for ours, theirs in zip(outcome.probabilities, alone.probabilities, strict=True):
            assert np.abs(ours - theirs).max() < 1e-4
    scheduler.close(drain=True)
    pool.clear()
    assert pool.use().used_bytes == 0
