"""Requests in, probabilities out: rounds are filled, leased, packed, run and collected here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from flide_engine.core import GRID, Outcome, Request, Reuse
from flide_engine.errors import NonFiniteError, RequestTooLarge
from flide_engine.executors import LogProbabilities, PlainExecutor
from flide_engine.pack import Trunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_engine.blocks import Lease
    from flide_engine.executors import Executor
    from flide_engine.models import Decoder
    from flide_engine.pool import Pool
    from flide_engine.storage import Storage


@dataclass(slots=True)
class _Group:
    """Requests of one tenant with equal trunks: their trunk is computed once."""

    request: Request
    members: list[int]

    def add(self, index: int, request: Request) -> None:
        durable = [r.durable for r in (self.request, request)]
        self.members.append(index)
        self.request = replace(
            self.request,
            branches=self.request.branches + request.branches,
            durable=None if None in durable else max(d for d in durable if d is not None),
        )


class Runner:
    """Runs requests on one model and one pool, one round after the other.

    Args:
        model: the decoder.
        storage, pool: its device memory and who holds what of it.
        max_round_tokens: rows of a round; a single larger request runs alone.
        execute: what runs a round; by default the model as it is.
    """

    def __init__(
        self,
        model: Decoder,
        storage: Storage,
        pool: Pool,
        max_round_tokens: int,
        execute: Executor | None = None,
    ) -> None:
        self._execute = execute or PlainExecutor(model, storage)
        self.model = model
        self.storage = storage
        self.pool = pool
        self.max_round_tokens = max_round_tokens

    def run(self, requests: Sequence[Request]) -> list[Outcome]:
        """Answer requests, in as few rounds as their tokens and the pool allow.

        Raises:
            RequestTooLarge: one can never be answered; nothing was run.
            NonFiniteError: the model gave NaN or infinity for one; nothing of that one is kept.
        """
        for request in requests:
            self._check(request)
        outcomes: dict[int, Outcome] = {}
        waiting = deque(_grouped(requests))
        while waiting:
            groups, leases = self._fill(waiting)
            for group, outcome in zip(groups, self._round(leases), strict=True):
                outcomes.update(_shared_out(group, requests, outcome))
        return [outcomes[index] for index in range(len(requests))]

    def _check(self, request: Request) -> None:
        self.pool.check_fits(len(request.trunk))
        lengths = [len(request.trunk)]
        for branch in request.branches:
            fork = len(request.trunk) if branch.fork is None else branch.fork
            lengths.append(fork + len(branch.token_ids))
        if (length := max(lengths)) > self.model.max_positions:
            raise RequestTooLarge(
                f"state and question have {length} tokens, but the model reads "
                f"{self.model.max_positions}: shorten one of them."
            )

    def _fill(self, waiting: deque[_Group]) -> tuple[list[_Group], list[Lease]]:
        """Lease groups off the queue until the round or the pool is full."""
        groups: list[_Group] = []
        leases: list[Lease] = []
        rows = 0
        while waiting:
            lease = self.pool.acquire(waiting[0].request)
            if lease is None:
                break
            rows += _rows(lease)
            if leases and rows > self.max_round_tokens:
                self.pool.release(lease)
                break
            groups.append(waiting.popleft())
            leases.append(lease)
        assert leases, "a pool without leases has room for any request that fits it"
        return groups, leases

    def _round(self, leases: list[Lease]) -> list[Outcome]:
        """Run one round; each lease ends here, kept only if what it read is finite."""
        trunks = [
            Trunk(
                lease.request.trunk,
                lease.request.branches,
                lease.pages,
                lease.start,
                lease.state_in,
                lease.saves,
            )
            for lease in leases
        ]
        try:
            logprobs = self._execute(trunks)
        except BaseException:
            for lease in leases:
                self.pool.release(lease)
            raise
        return self._collect(leases, logprobs)

    def _collect(self, leases: list[Lease], logprobs: list[LogProbabilities]) -> list[Outcome]:
        outcomes = []
        failed = 0
        row = 0
        for lease in leases:
            read = logprobs[row : row + len(lease.request.branches)]
            row += len(read)
            if not (all(np.isfinite(part).all() for part in read) and self._keys_finite(lease)):
                self.pool.release(lease)
                failed += 1
                continue
            outcomes.append(_outcome(lease, read))
            self.pool.commit(lease)
        if failed:
            raise NonFiniteError(
                f"the model gave NaN or infinity for {failed} of {len(leases)} states: its weights "
                f"may be damaged, or too large for {self.model.dtype}."
            )
        return outcomes

    def _keys_finite(self, lease: Lease) -> bool:
        """Whether the last layer's keys are, which stand for a state that nobody asked about."""
        if lease.request.branches or not self.storage.keys:
            return True
        keys = self.storage.keys[-1]
        own = keys.view(-1, GRID, *keys.shape[1:])[lease.own_pages].flatten(0, 1)
        return bool(torch.isfinite(own[: len(lease.request.trunk) - lease.start]).all())


def _grouped(requests: Sequence[Request]) -> list[_Group]:
    groups: dict[tuple[str, bytes], _Group] = {}
    for index, request in enumerate(requests):
        key = (request.tenant, request.trunk.tobytes())
        if key in groups:
            groups[key].add(index, request)
        else:
            groups[key] = _Group(request, [index])
    return list(groups.values())


def _rows(lease: Lease) -> int:
    """Stream rows a lease adds to its round."""
    own = len(lease.request.trunk) - lease.start
    return own + sum(len(branch.token_ids) for branch in lease.request.branches)


def _outcome(lease: Lease, logprobs: list[LogProbabilities]) -> Outcome:
    # Taken again in float64, so that probabilities sum to one beyond the precision of the pass.
    weights = [np.exp(part - part.max()) for part in logprobs]
    source = "pool" if lease.start else "none"
    return Outcome(
        tuple(part / part.sum() for part in weights), Reuse(_rows(lease), lease.start, source)
    )


def _shared_out(group: _Group, requests: Sequence[Request], outcome: Outcome) -> dict[int, Outcome]:
    """What each member of a group gets; the trunk's cost is the first one's."""
    shares = {}
    first = 0
    for position, index in enumerate(group.members):
        request = requests[index]
        own = outcome.probabilities[first : first + len(request.branches)]
        first += len(request.branches)
        asked = sum(len(branch.token_ids) for branch in request.branches)
        reuse = replace(
            outcome.reuse, new_tokens=len(request.trunk) - outcome.reuse.reused_tokens + asked
        )
        if position:
            reuse = Reuse(asked, len(request.trunk), "round")
        shares[index] = Outcome(own, reuse)
    return shares
