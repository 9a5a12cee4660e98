"""Schedulers for tests: one that lives for one call, and one whose rounds compute nothing."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flide_engine.core import Branch, Request
from flide_engine.runner import Runner
from flide_engine.scheduler import Scheduler
from flide_engine.storage import Layout, Storage
from tests.support.pools import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flide_engine.core import Outcome, Tokens
    from flide_engine.executors import LogProbabilities
    from flide_engine.pack import Trunk
    from flide_engine.pool import Pool

PATIENT = 20.0
"""Seconds after which a test no longer believes that something will happen."""


def serve(runner: Runner, requests: Sequence[Request]) -> list[Outcome]:
    """Answer requests together."""
    scheduler = Scheduler(runner)
    try:
        return scheduler.run(requests)
    finally:
        scheduler.close(drain=False)


class Stage:
    """A scheduler whose rounds compute nothing: they are noted, and may be held up or fail.

    Every option of a branch is as probable as its label says: label n weighs n + 1.

    Attributes:
        rounds: the trunks of every round, failed ones too.
        under_way, most_under_way: rounds that were started and not waited for, now and ever.
        meets: called with every round; may raise. With a depth of 1 that is when a round is
            started, else when it is waited for.
        spoils: which branches have no finite answer.
    """

    def __init__(self, pool: Pool, max_rows: int = 1000, depth: int = 1) -> None:
        self.pool = pool
        self.depth = depth
        self.rounds: list[list[Trunk]] = []
        self.under_way = self.most_under_way = 0
        self.meets: Callable[[Sequence[Trunk]], object] = lambda trunks: None
        self.spoils: Callable[[Branch], bool] = lambda branch: False
        self._open = threading.Event()
        self._open.set()
        self._entered = threading.Semaphore(0)
        model: Any = SimpleNamespace(max_positions=10**6, dtype=torch.float32)
        nothing = Layout(attention_layers=0, kv_heads=1, head_dim=1, heads=1)
        storage = Storage(
            nothing, num_pages=1, num_states=1, dtype=torch.float32, device=torch.device("cpu")
        )
        self.scheduler = Scheduler(Runner(model, storage, pool, max_rows, self))
        self.submit = self.scheduler.submit

    def start(self, trunks: Sequence[Trunk]) -> Callable[[], list[LogProbabilities]]:
        """Note a round; it ends when the stage lets it."""
        self.rounds.append(list(trunks))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        meets = self.meets
        if self.depth == 1:
            self._pass()
            meets(trunks)
        branches = [branch for trunk in trunks for branch in trunk.branches]

        def read() -> list[LogProbabilities]:
            self.under_way -= 1
            if self.depth > 1:
                self._pass()
                meets(trunks)
            return [
                np.log(branch.label_ids + 1.0) * (np.nan if self.spoils(branch) else 1)
                for branch in branches
            ]

        return read

    def _pass(self) -> None:
        self._entered.release()
        assert self._open.wait(PATIENT)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While one round is under way, which is not noted: what is submitted meanwhile waits."""
        self._open.clear()
        blocker = self.submit(ask(words(9, seed=99)))
        assert self._entered.acquire(timeout=PATIENT)
        try:
            yield
        finally:
            self.rounds.clear()
            self._open.set()
        blocker.result(PATIENT)

    def rows(self) -> list[int]:
        """How large the rounds were."""
        return [sum(map(rows_of, trunks)) for trunks in self.rounds]

    def order(self) -> list[list[int]]:
        """The first tokens of the trunks of every round, which tell requests apart."""
        return [[int(trunk.token_ids[0]) for trunk in trunks] for trunks in self.rounds]


def rows_of(trunk: Trunk) -> int:
    """Rows of a round that a trunk and its branches take."""
    return trunk.tail + sum(len(branch.token_ids) for branch in trunk.branches)


def ask(trunk: Tokens, asked: int = 5, *, tenant: str = "", mark: int = 0) -> Request:
    """A question of so many tokens about a history; `mark` becomes its first token."""
    tokens = words(asked, seed=7)
    tokens[0] = mark
    return Request(trunk, (Branch(tokens, np.arange(3)),), tenant)


def history(length: int, seed: int) -> Tokens:
    """A history that begins with its seed."""
    tokens = words(length, seed)
    tokens[0] = seed
    return tokens
