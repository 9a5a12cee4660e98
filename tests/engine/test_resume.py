"""Real models on a tiny pool: whatever was reused or evicted, an answer is that of a fresh run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flide_engine.core import GRID, Branch, Request, Tokens
from flide_engine.marks import MARGIN
from flide_engine.pool import Pool
from flide_engine.runner import Runner
from flide_engine.storage import Storage
from tests.support.models import VOCABULARY
from tests.support.serving import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flide_engine.core import Outcome
    from flide_engine.models import Decoder
    from tests.engine.conftest import Checkpoint

OURS = 1e-10
LONGEST = 800
ROUNDS = 12


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Models this small are slower on several threads, much so beside other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def spoil(storage: Storage, pages: list[int], states: list[int]) -> None:
    """NaN in memory that nobody owns, so that whatever is read must have been kept."""
    for tensor in (*storage.keys, *storage.values):
        tensor.view(storage.num_pages, GRID, *tensor.shape[1:])[pages] = float("nan")
    for tensor in (*storage.recurrent, *storage.windows):
        tensor[states] = float("nan")


def make_runner(decoder: Decoder, pages: int, states: int, percent: int = 100) -> Runner:
    """A runner whose pool has so many pages and states, and bytes for some percent of them."""
    page_bytes = decoder.layout.page_bytes(decoder.dtype)
    state_bytes = decoder.layout.state_bytes(decoder.dtype)
    states = states if state_bytes else 0
    storage = Storage(
        decoder.layout,
        num_pages=pages,
        num_states=states,
        dtype=decoder.dtype,
        device=torch.device("cpu"),
    )
    spoil(storage, list(range(pages)), list(range(states)))
    pool = Pool(
        num_pages=pages,
        num_states=states,
        page_bytes=page_bytes,
        state_bytes=state_bytes,
        budget_bytes=(pages * page_bytes + states * state_bytes) * percent // 100,
        cost=decoder.cost,
    )
    return Runner(decoder, storage, pool, max_round_tokens=1200)


class Histories:
    """Two tenants' histories, which grow, are edited, cut, forked, and asked about."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.known: list[tuple[str, Tokens]] = [(tenant, self.words(300)) for tenant in ("", "b")]

    def words(self, most: int) -> Tokens:
        """A few random tokens."""
        return self.rng.integers(0, VOCABULARY, self.rng.integers(1, most + 1))

    def request(self) -> Request:
        """A question or three about a history made from one of the last few."""
        rng = self.rng
        recent = self.known[-5:]
        tenant, trunk = recent[rng.integers(len(recent))]
        trunk = trunk.copy()
        change = rng.random()
        if change < 0.25:
            trunk[rng.integers(len(trunk))] = rng.integers(VOCABULARY)
        elif change < 0.4:
            trunk = trunk[: rng.integers(1, len(trunk) + 1)]
        if change > 0.1:
            trunk = np.concatenate([trunk, self.words(150)])[:LONGEST]
        self.known.append((tenant, trunk))
        branches = []
        for _ in range(rng.integers(0, 4)):
            labels = rng.choice(VOCABULARY, 7, replace=False)
            fork = None
            if rng.random() < 0.2:
                fork = int(rng.integers(len(trunk) // GRID + 1)) * GRID
            branches.append(Branch(self.words(90), labels, fork))
        durable = int(rng.integers(len(trunk) + 1)) if rng.random() < 0.3 else None
        return Request(trunk, tuple(branches), tenant, durable)


def assert_equal(outcome: Outcome, fresh: Outcome) -> None:
    """The same answers, whatever was computed."""
    assert len(outcome.probabilities) == len(fresh.probabilities)
    for ours, alone in zip(outcome.probabilities, fresh.probabilities, strict=True):
        np.testing.assert_allclose(ours, alone, rtol=0, atol=OURS)


@pytest.mark.parametrize(("pages", "states", "percent"), [(13, 3, 100), (24, 8, 60), (40, 20, 100)])
def test_every_answer_is_that_of_an_empty_pool(
    checkpoint: Checkpoint, pages: int, states: int, percent: int
) -> None:
    """Random growth, edits, cuts and forks, up to four requests at once, in float64."""
    rng = np.random.default_rng([pages, states, percent])
    runner = make_runner(checkpoint.float64, pages, states, percent)
    pool = runner.pool
    histories = Histories(rng)
    reused = 0
    for _ in range(ROUNDS):
        requests = [histories.request() for _ in range(rng.integers(1, 5))]
        outcomes = serve(runner, requests)
        for request, outcome in zip(requests, outcomes, strict=True):
            empty = make_runner(checkpoint.float64, LONGEST // GRID + 1, 0)
            assert_equal(outcome, serve(empty, [request])[0])
            reused += outcome.reuse.source == "pool"
        use = pool.use()
        assert use.used_bytes <= use.budget_bytes
        assert use.pins == 0
        spoil(runner.storage, pool._free_pages, pool._free_states)
    assert reused > 5
    pool.clear()
    assert pool.use().used_bytes == 0


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_a_checkpoint_at_the_very_end_of_a_trunk_is_exact(
    checkpoint: Checkpoint, blocks: int
) -> None:
    """As a request leaves it that asks nothing and whose end is sure."""
    rng = np.random.default_rng(blocks)
    runner = make_runner(checkpoint.float64, 24, 8)
    trunk = rng.integers(0, VOCABULARY, blocks * GRID + 70)
    for end in (blocks * GRID, (blocks + 1) * GRID):
        serve(runner, [Request(trunk[:end], (), durable=end + MARGIN)])
    spoil(runner.storage, runner.pool._free_pages, runner.pool._free_states)
    asked = Request(trunk, (Branch(rng.integers(0, VOCABULARY, 9), np.arange(5)),))
    (outcome,) = serve(runner, [asked])
    assert outcome.reuse.reused_tokens == (blocks + 1) * GRID
    assert_equal(outcome, serve(make_runner(checkpoint.float64, 24, 0), [asked])[0])
