"""Before a request waits for a round: is there a checkpoint below the device worth bringing up?"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from flide_engine.blocks import block_digests
from flide_engine.core import GRID

if TYPE_CHECKING:
    from flide_engine.core import Outcome, Request
    from flide_engine.lower import Lower, Restored
    from flide_engine.pool import Pool
    from flide_engine.scheduler import Scheduler

_log = logging.getLogger(__name__)

_AUDITOR = "\0audit"
"""A tenant of which no checkpoint is ever kept."""

LOADERS = 4
"""Requests whose checkpoints are looked for at one time."""

WORTH_A_LOOK = 0.003
"""Seconds of computing below which it is not asked what the tiers hold."""


class Restorer:
    """Submits requests, each once it is known what comes up for it.

    Args:
        scheduler: runs them.
        pool: what the device holds; only read, as a hint.
        lower: the tiers below it.
    """

    def __init__(self, scheduler: Scheduler, pool: Pool, lower: Lower) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._lower = lower
        self._threads = ThreadPoolExecutor(LOADERS, thread_name_prefix="flide-load")

    def submit(
        self, request: Request, *, deadline: float | None = None, eager: bool = False
    ) -> Future[Outcome]:
        """See `Scheduler.submit`."""
        full = len(request.trunk) // GRID
        digests = block_digests(request.tenant, request.trunk, full, request.digests)
        request = replace(request, digests=digests)
        missing = len(request.trunk) - self._pool.held(request)
        if self._lower.model.predicted_recompute_seconds(missing) < WORTH_A_LOOK:
            return self._scheduler.submit(request, deadline=deadline, eager=eager)
        outer: Future[Outcome] = Future()

        def bring() -> None:
            if outer.cancelled():
                return
            restored, choice = self._find(request)
            inner = self._scheduler.submit(
                request, deadline=deadline, eager=eager, restored=restored, choice=choice
            )
            outer.add_done_callback(lambda done: inner.cancel() if done.cancelled() else None)
            if restored is not None and request.branches and self._lower.audit.chooses():
                inner.add_done_callback(lambda done: self._check(request, done))
            inner.add_done_callback(lambda done: _pass_on(done, outer))

        self._threads.submit(bring)
        return outer

    def close(self) -> None:
        """Submit what is still being looked for."""
        self._threads.shutdown(wait=True)

    def _check(self, request: Request, restored: Future[Outcome]) -> None:
        """Compute a restored request again, from nothing and leaving nothing, and compare."""
        if restored.cancelled() or restored.exception() is not None:
            return
        afresh = replace(request, tenant=_AUDITOR, durable=0, digests=())

        def compare(computed: Future[Outcome]) -> None:
            if not computed.cancelled() and computed.exception() is None:
                self._lower.audit.compare(restored.result(), computed.result())

        self._scheduler.submit(afresh, eager=True).add_done_callback(compare)

    def _find(self, request: Request) -> tuple[Restored | None, str]:
        try:
            return self._lower.find(request, self._pool.held(request))
        except Exception:
            # A cache may only make things faster.
            _log.exception("a checkpoint could not be looked for below the device")
            return None, "computed: the tiers below the device could not be asked"


def _pass_on(done: Future[Outcome], outer: Future[Outcome]) -> None:
    """Keep a promise as another one was kept."""
    if done.cancelled():
        outer.cancel()
    if not outer.set_running_or_notify_cancel():
        return
    if (error := done.exception()) is not None:
        outer.set_exception(error)
    else:
        outer.set_result(done.result())
