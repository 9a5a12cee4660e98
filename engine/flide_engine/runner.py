"""One round: leases in, a started pass, and what it read; what is not finite is never kept."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from flide_engine.core import GRID
from flide_engine.errors import RequestTooLarge
from flide_engine.executors import LogProbabilities, PlainExecutor
from flide_engine.pack import Trunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_engine.blocks import Lease
    from flide_engine.core import Request
    from flide_engine.executors import Executor
    from flide_engine.lower import Lower, Restored
    from flide_engine.models import Decoder
    from flide_engine.pool import Pool
    from flide_engine.storage import Storage


class PassFailed(Exception):
    """A pass raised; its cause says what, and its leases have ended."""


class Reading(NamedTuple):
    """What a round read of one lease.

    Attributes:
        probabilities: of every branch over its labels, in float64; None where it is not finite.
        finite: whether all of it is; then it was kept.
    """

    probabilities: list[npt.NDArray[np.float64] | None]
    finite: bool


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A round that was launched.

    Attributes:
        leases: what it uses.
        read: waits for its end, and gives the log-probabilities of every branch.
        began: when, on `time.perf_counter`.
    """

    leases: Sequence[Lease]
    read: Callable[[], list[LogProbabilities]]
    began: float


class Runner:
    """Runs rounds on one model and one pool. Only one thread at a time may use it.

    Args:
        model: the decoder.
        storage, pool: its device memory and who holds what of it.
        max_round_tokens: rows of a round; a single larger request may run alone.
        execute: what runs a round; by default the model as it is.
        lower: the tiers below the device, if there are any.
    """

    def __init__(
        self,
        model: Decoder,
        storage: Storage,
        pool: Pool,
        max_round_tokens: int,
        execute: Executor | None = None,
        lower: Lower | None = None,
    ) -> None:
        self._executor = execute or PlainExecutor(model, storage)
        self.depth = self._executor.depth
        self.model = model
        self.storage = storage
        self.pool = pool
        self.max_round_tokens = max_round_tokens
        self._lower = lower

    def bind(self) -> None:
        """Let the calling thread be the one that uses the device."""
        if self.storage.device.type == "cuda":
            torch.cuda.set_device(self.model.embedding.device)

    def check(self, request: Request) -> None:
        """Raise RequestTooLarge for a request that can never be answered here."""
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

    def launch(self, leases: Sequence[Lease]) -> Flight:
        """Start a round; its leases end in `collect` or `abandon`.

        Raises:
            PassFailed: it cannot be started.
        """
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
            began = time.perf_counter()
            return Flight(leases, self._executor.start(trunks), began)
        except Exception as error:
            self.release(leases)
            raise PassFailed from error

    def collect(self, flight: Flight) -> list[Reading]:
        """Wait for a round and end its leases; what was finite is kept.

        Raises:
            PassFailed: the pass failed.
        """
        try:
            readings = self._read(flight)
        except Exception as error:
            self.release(flight.leases)
            raise PassFailed from error
        if self._lower is not None:
            self._lower.passed(flight.leases, time.perf_counter() - flight.began)
        for lease, reading in zip(flight.leases, readings, strict=True):
            if reading.finite:
                if self._lower is not None:
                    self._lower.keep(lease)
                self.pool.commit(lease)
            else:
                self.pool.release(lease)
        return readings

    def bring_up(self, request: Request, restored: Restored) -> bool:
        """Put a checkpoint that came from below on the device; whether there was room for it."""
        return self._lower is not None and self._lower.bring_up(self.pool, request, restored)

    def release(self, leases: Sequence[Lease]) -> None:
        """End leases and keep nothing of them."""
        for lease in leases:
            self.pool.release(lease)

    def _read(self, flight: Flight) -> list[Reading]:
        logprobs = flight.read()
        readings = []
        row = 0
        for lease in flight.leases:
            own = logprobs[row : row + len(lease.request.branches)]
            row += len(own)
            probabilities = [_normalised(part) for part in own]
            finite = all(part is not None for part in probabilities) and self._keys_finite(lease)
            readings.append(Reading(probabilities, finite))
        return readings

    def _keys_finite(self, lease: Lease) -> bool:
        """Whether the last layer's keys are, which stand for a state that nobody asked about."""
        if any(b.fork is None for b in lease.request.branches) or not self.storage.keys:
            return True
        keys = self.storage.keys[-1]
        own = keys.view(-1, GRID, *keys.shape[1:])[lease.own_pages].flatten(0, 1)
        return bool(torch.isfinite(own[: len(lease.request.trunk) - lease.start]).all())


def _normalised(logprobs: LogProbabilities) -> npt.NDArray[np.float64] | None:
    """Probabilities that sum to one beyond the precision of the pass."""
    if not np.isfinite(logprobs).all():
        return None
    weights: npt.NDArray[np.float64] = np.exp(logprobs - logprobs.max())
    weights /= weights.sum()
    return weights
