"""A real model under fire: whatever else happens, what is answered is answered right."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flide_engine.core import Branch, Outcome, Request
from flide_engine.errors import DeadlineExceeded, NonFiniteError
from flide_engine.executors import PlainExecutor
from flide_engine.runner import Runner
from flide_engine.scheduler import Scheduler
from tests.engine.test_resume import OURS, make_runner, spoil
from tests.support.models import VOCABULARY, load, random_model, save

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_engine.core import Tokens
    from flide_engine.executors import LogProbabilities
    from flide_engine.models import Decoder
    from flide_engine.pack import Trunk
    from flide_engine.pool import Pool

REQUESTS, THREADS, BURST = 1000, 4, 25
LONGEST, ROUND = 320, 150
POISON = 7
"""A token whose embedding is NaN."""
LABELS = np.array([3, 50, 9, 4])
NO_LABELS = np.array([3, VOCABULARY])
"""A label that the model does not have."""


@pytest.fixture(
    scope="module", params=[("llama", "tied"), ("qwen3_5", "tied")], ids=["llama", "hybrid"]
)
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    """A random model in float64 that one token breaks."""
    directory = save(random_model(*request.param), tmp_path_factory.mktemp("model"))
    model = load(directory, torch.float64)
    model.embedding[POISON] = float("nan")
    return model


class Spoiling(PlainExecutor):
    """Before every round, whatever nobody holds becomes NaN."""

    pool: Pool
    rounds: int = 0

    def start(self, trunks: Sequence[Trunk]) -> Callable[[], list[LogProbabilities]]:
        """Spoil, then run."""
        self.rounds += 1
        spoil(self.storage, self.pool._free_pages, self.pool._free_states)
        return super().start(trunks)


@dataclass
class Shot:
    """One submitted request, and what may become of it besides an answer."""

    request: Request
    future: Future[Outcome]
    errors: set[type[BaseException]]
    must_fail: bool


def histories(rng: np.random.Generator) -> list[tuple[str, Tokens]]:
    """Histories of two tenants that share openings; some are poisoned."""

    def words(most: int) -> Tokens:
        tokens = rng.integers(0, VOCABULARY, rng.integers(1, most + 1))
        return np.where(tokens == POISON, 0, tokens)

    known = [(tenant, words(200)) for tenant in ("a", "a", "b")]
    while len(known) < 60:
        tenant, trunk = known[rng.integers(max(len(known) - 8, 0), len(known))]
        grown = np.concatenate([trunk[: rng.integers(1, len(trunk) + 1)], words(120)])
        known.append((tenant, grown[:LONGEST]))
    for place in rng.choice(len(known), 8, replace=False):
        tenant, trunk = known[place]
        known[place] = (tenant, trunk.copy())
        known[place][1][rng.integers(len(trunk))] = POISON
    return known


def requests(rng: np.random.Generator) -> list[Request]:
    """What is asked: each history with no question, one, or a few."""
    made = []
    for tenant, trunk in histories(rng):
        for _ in range(2):
            branches = tuple(
                Branch(rng.integers(8, VOCABULARY, rng.integers(1, 40)), LABELS)
                for _ in range(rng.integers(0, 4))
            )
            made.append(Request(trunk, branches, tenant))
    spoiled = rng.choice(len(made), 6, replace=False)
    for place in spoiled:
        bad = Branch(np.array([9]), NO_LABELS)
        made[place] = replace(made[place], branches=(*made[place].branches, bad))
    return made


def fire(scheduler: Scheduler, known: list[Request], seed: int) -> list[Shot]:
    """One thread's requests, in bursts; some are cancelled, and some have little time."""
    rng = np.random.default_rng(seed)
    shots = []
    for _ in range(REQUESTS // THREADS // BURST):
        burst = []
        for _ in range(BURST):
            request = known[rng.integers(len(known))]
            breaks = any(branch.label_ids is NO_LABELS for branch in request.branches)
            poisoned = POISON in request.trunk
            errors: set[type[BaseException]] = set()
            errors |= {IndexError} if breaks else set()
            errors |= {NonFiniteError} if poisoned else set()
            deadline = None
            if rng.random() < 0.15:
                deadline = time.monotonic() + rng.choice([-1, 0.01, 0.1, 10])
                errors.add(DeadlineExceeded)
            eager = not request.branches and rng.random() < 0.5
            future = scheduler.submit(request, deadline=deadline, eager=eager)
            burst.append(Shot(request, future, errors, breaks or poisoned))
        for shot in rng.choice(np.array(burst), 4, replace=False):
            time.sleep(0.002 * rng.random())
            shot.errors.add(CancelledError)
            shot.future.cancel()
        shots += burst
        wait([shot.future for shot in burst[: rng.integers(BURST)]], 60)
    return shots


def outcome_of(shot: Shot) -> Outcome | type[BaseException]:
    """What became of it."""
    try:
        return shot.future.result(0)
    except BaseException as error:
        return type(error)


def test_under_fire(decoder: Decoder) -> None:
    """Cancels, deadlines, poison, errors and a tiny pool: the rest is right, and nothing leaks."""
    rng = np.random.default_rng(5)
    known = requests(rng)
    runner = make_runner(decoder, 9, 3)
    executor = Spoiling(decoder, runner.storage)
    executor.pool = pool = runner.pool
    scheduler = Scheduler(Runner(decoder, runner.storage, pool, ROUND, executor))
    with ThreadPoolExecutor(THREADS) as threads:
        fired = threads.map(lambda seed: fire(scheduler, known, seed), range(THREADS))
        shots = [shot for part in fired for shot in part]
    not_done = wait([shot.future for shot in shots], 60).not_done

    assert not not_done
    assert len(shots) == REQUESTS
    health = scheduler.health
    assert (health.alive, health.waiting, health.running) == (True, 0, 0)
    assert_right(decoder, shots)
    scheduler.close(drain=True)
    use = pool.use()
    assert (use.pins, use.pages) == (0, use.blocks)
    assert use.states == len(pool._tree.stateful)
    pool.clear()
    assert (pool.use().used_bytes, pool.use().blocks) == (0, 0)


def assert_right(decoder: Decoder, shots: list[Shot]) -> None:
    """Each is answered as it would be in an empty pool, or failed as it had to or might."""
    fresh = make_runner(decoder, LONGEST // 64 + 1, 0)
    alone = Scheduler(Runner(decoder, fresh.storage, fresh.pool, 2 * LONGEST))
    truth: dict[Request, Outcome] = {}
    became: Counter[str] = Counter()
    for shot in shots:
        outcome = outcome_of(shot)
        if not isinstance(outcome, Outcome):
            assert outcome in shot.errors
            became[outcome.__name__] += 1
            continue
        # What nobody asked about may have been held: its poison is past the last checkpoint.
        assert not shot.must_fail or not shot.request.branches
        if shot.must_fail:
            continue
        became[outcome.reuse.source] += 1
        if shot.request not in truth:
            fresh.pool.clear()
            truth[shot.request] = alone.run([shot.request])[0]
        wanted = truth[shot.request].probabilities
        assert len(outcome.probabilities) == len(wanted)
        for ours, theirs in zip(outcome.probabilities, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=OURS)
    alone.close(drain=True)
    errors = {"CancelledError", "DeadlineExceeded", "IndexError", "NonFiniteError"}
    assert set(became) == errors | {"none", "pool", "round"}
    assert sum(became[name] for name in ("none", "pool", "round")) > REQUESTS / 2
