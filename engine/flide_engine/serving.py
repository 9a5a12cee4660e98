"""All that stands between requests of tokens and the device: queue, rounds, pool, tiers below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.backend import make_backend
from flide_engine.core import GRID
from flide_engine.parts import Parts
from flide_engine.restoring import Restorer
from flide_engine.runner import Runner
from flide_engine.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from flide_engine.backend import Backend
    from flide_engine.blocks import PoolUse
    from flide_engine.core import Outcome, Request
    from flide_engine.lower import Lower, Tiers
    from flide_engine.models import Decoder
    from flide_engine.weights import Progress


class Serving:
    """Answers requests of tokens.

    Args:
        model: the decoder.
        pool_bytes, max_round_tokens: see `Engine.from_pretrained`.
        tiers: where checkpoints go besides the device.
        fingerprint: what tells the model's checkpoints from those of others.
        progress: called as (done, total) while a GPU is made ready; see `make_backend`.

    Attributes:
        storage, pool: the device's memory, and who holds what of it.
        scheduler: where requests wait.
    """

    def __init__(
        self,
        model: Decoder,
        *,
        pool_bytes: int | None,
        max_round_tokens: int,
        tiers: Tiers | None,
        fingerprint: Mapping[str, str],
        progress: Progress,
    ) -> None:
        lower_stride = _stride() if tiers else GRID
        backend = make_backend(model, pool_bytes, max_round_tokens, lower_stride, progress)
        self.storage, self.pool = backend.storage, backend.pool
        self._lower = _lower(tiers, backend, fingerprint) if tiers else None
        runner = Runner(
            model, self.storage, self.pool, max_round_tokens, backend.execute, self._lower
        )
        self._check = runner.check
        self.scheduler = Scheduler(runner)
        self._restorer = Restorer(self.scheduler, self.pool, self._lower) if self._lower else None

    def run(self, requests: Sequence[Request]) -> list[Outcome]:
        """Answer requests and wait for them. See `Scheduler.run`."""
        if self._restorer is None:
            return self.scheduler.run(requests)
        futures = [self._restorer.submit(request) for request in requests]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def check(self, request: Request) -> None:
        """Raise RequestTooLarge for a request that can never be answered here."""
        self._check(request)

    def submit(
        self, request: Request, *, deadline: float | None = None, eager: bool = False
    ) -> Future[Outcome]:
        """Promise an outcome. See `Scheduler.submit`."""
        way = self._restorer or self.scheduler
        return way.submit(request, deadline=deadline, eager=eager)

    def forget(self) -> None:
        """Drop all checkpoints on the device that nobody is using."""
        self.scheduler.call(self.pool.clear)

    def use(self) -> PoolUse:
        """What the device holds, between two rounds."""
        return self.scheduler.call(self.pool.use)

    def close(self, *, drain: bool) -> None:
        """Answer what waits if `drain`, hand the last checkpoints to the store, and end."""
        if self._restorer is not None:
            self._restorer.close()
        self.scheduler.close(drain=drain)
        if self._lower is not None:
            self._lower.close()


def _stride() -> int:
    # The store and what it needs are loaded only by those who have one.
    from flide_engine.lower import STRIDE

    return STRIDE


def _lower(tiers: Tiers, backend: Backend, fingerprint: Mapping[str, str]) -> Lower:
    """The tiers below a device; what was computed in other numbers is not for this one."""
    from flide_engine.lower import Lower

    storage = backend.storage
    numbers = {
        "dtype": str(storage.dtype),
        "device": storage.device.type,
        "layout": repr(storage.layout),
    }
    return Lower(
        tiers, Parts(storage), hybrid=backend.pool.hybrid, fingerprint={**fingerprint, **numbers}
    )
