"""The thread that owns the device: it runs round after round and ends every request it was given.

A round that fails is run again in halves until what is wrong with it is alone.
"""

from __future__ import annotations

import time
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from flide_engine.core import Outcome, Request, Reuse
from flide_engine.errors import DeadlineExceeded, EngineFault, NonFiniteError, RequestTooLarge
from flide_engine.filling import Share, fill
from flide_engine.inbox import CLOSED
from flide_engine.runner import PassFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flide_engine.inbox import Inbox
    from flide_engine.runner import Flight, Reading, Runner
    from flide_engine.work import Work


class _Launched(NamedTuple):
    """A round under way."""

    shares: Sequence[Share]
    flight: Flight


class Worker:
    """Runs what comes into an inbox.

    Args:
        runner: what runs a round; nobody else may use it.
        inbox: where requests come from.
    """

    def __init__(self, runner: Runner, inbox: Inbox) -> None:
        self._runner = runner
        self._pool = runner.pool
        self._inbox = inbox
        self._tokens = 0
        self._queue: list[Work] = []
        self._again: deque[Sequence[Work]] = deque()
        self._flying: deque[_Launched] = deque()

    def run(self) -> None:
        """Work until the inbox is closed and nothing is left. Whatever goes wrong, all are told."""
        try:
            self._runner.bind()
            while self._step():
                pass
        except BaseException as error:
            told = error.args[0] if isinstance(error, EngineFault) else _broke(error)
            try:
                for launched in self._flying:
                    self._runner.release(launched.flight.leases)
            finally:
                self._inbox.fail(told, error)

    def _step(self) -> bool:
        """Do the next thing; False if there is none and never will be.

        Nothing of a request may outlive this: while the thread waits it must not keep anything.
        """
        if len(self._flying) == self._runner.depth:
            self._collect()
        idle = not (self._queue or self._again or self._flying)
        arrived = self._inbox.take(wait=idle)
        if arrived is None:
            return False
        for call in self._inbox.calls():
            call.run()
        self._admit(arrived)
        self._queue = [work for work in self._queue if not self._leaves(work)]
        self._queue.sort(key=attrgetter("rank"))
        if self._again and not self._flying:
            self._launch_again()
        elif (self._again or not self._launch()) and self._flying:
            self._collect()
        return True

    def _admit(self, works: Iterable[Work]) -> None:
        for work in works:
            if work.restored is not None:
                if self._runner.bring_up(work.request, work.restored):
                    work.source = work.restored.tier
                work.restored = None
            work.resume(self._pool.held(work.request))
            work.came = self._tokens
            if not work.eager:
                self._tokens += work.left
            self._queue.append(work)

    def _leaves(self, work: Work) -> bool:
        """Whether a waiting request leaves before it is launched; it is told so."""
        if work.waited:
            work.resume(self._pool.held(work.request))
            work.waited = False
        now = time.monotonic()
        closed = self._inbox.closed and (work.eager or not self._inbox.drains)
        if work.future.cancelled() or closed:
            self._inbox.end(work, EngineFault(CLOSED))
        elif work.deadline is not None and work.deadline <= now:
            self._inbox.end(work, _too_late(work, now))
        elif work.has_nothing_to_do or work.gave_up:
            found = work.start if work.found is None else work.found
            self._inbox.end(work, Outcome((), _reuse(work, work.spent, found)))
        else:
            return False
        return True

    def _launch(self) -> bool:
        """Launch the next round; whether there was one."""
        if not self._queue:
            return False
        rows = self._runner.max_round_tokens
        # A round beside another one that is not full would only lock out whoever comes meanwhile.
        if self._flying and sum(w.left for w in self._queue if not w.eager) < rows:
            return False
        flying = [share for launched in self._flying for share in launched.shares]
        shares = fill(self._queue, self._pool, rows, flying)
        assert shares or flying or any(w.gave_up for w in self._queue), "a free pool has room"
        taken = {work for share in shares for work in share.works}
        self._queue = [work for work in self._queue if work not in taken]
        return self._start(shares)

    def _launch_again(self) -> None:
        """Launch some of a round that failed, with nothing beside it."""
        begun = self._again.popleft()
        works = [work for work in begun if work.claimed or not self._leaves(work)]
        shares = fill(works, self._pool, self._runner.max_round_tokens)
        taken = {work for share in shares for work in share.works}
        if rest := [work for work in works if work not in taken]:
            self._again.appendleft(rest)
        self._start(shares)

    def _start(self, shares: Sequence[Share]) -> bool:
        for share in shares:
            for work in share.works:
                work.found = share.lease.start if work.found is None else work.found
                if not share.piece:
                    work.claim()
        if not shares:
            return False
        try:
            flight = self._runner.launch([share.lease for share in shares])
        except PassFailed as failed:
            self._failed(shares, failed)
        else:
            self._flying.append(_Launched(shares, flight))
        return True

    def _collect(self) -> None:
        """Wait for the oldest round, and answer whom it was for."""
        shares, flight = self._flying.popleft()
        try:
            readings = self._runner.collect(flight)
        except PassFailed as failed:
            self._failed(shares, failed)
            return
        for share, reading in zip(shares, readings, strict=True):
            if share.piece:
                self._go_on(share, reading)
            else:
                self._answer(share, reading)

    def _go_on(self, share: Share, reading: Reading) -> None:
        """A piece of a trunk was read: the next one waits its turn."""
        (work,) = share.works
        if not reading.finite:
            self._inbox.end(work, self._not_finite())
            return
        work.spent += share.rows
        work.start = work.reached = len(share.lease.request.trunk)
        work.suspect = False
        self._queue.append(work)

    def _answer(self, share: Share, reading: Reading) -> None:
        probabilities = iter(reading.probabilities)
        for position, work in enumerate(share.works):
            own = tuple(next(probabilities) for _ in work.request.branches)
            read = tuple(part for part in own if part is not None)
            if len(read) == len(own) and (own or reading.finite):
                self._inbox.end(work, Outcome(read, _shared_out(share, position)))
            elif len(share.works) > 1:
                # It may be another one's branch that is not finite.
                self._again.append([work])
            else:
                self._inbox.end(work, self._not_finite())

    def _failed(self, shares: Sequence[Share], failed: PassFailed) -> None:
        """Have a failed round run again in halves; what fails twice alone is what was wrong."""
        works = [work for share in shares for work in share.works]
        half = len(works) // 2
        if half:
            self._again.extendleft([works[half:], works[:half]])
        elif not works[0].suspect:
            works[0].suspect = True
            self._again.appendleft(works)
        else:
            self._condemn(works[0], shares[0].rows, failed)

    def _condemn(self, work: Work, rows: int, failed: PassFailed) -> None:
        """Tell one request that it cannot be answered, if it is not the engine that broke."""
        error = failed.__cause__
        assert error is not None
        if _is_out_of_memory(error):
            too_large = RequestTooLarge(
                f"a round of {rows} rows is more than the device has memory for: ask for less, or "
                "give the engine a lower max_round_tokens or pool_bytes."
            )
            too_large.__cause__ = error
            self._inbox.end(work, too_large)
            return
        self._probe()
        self._inbox.end(work, error)

    def _probe(self) -> None:
        """Raise EngineFault if not even one token can be read."""
        lease = self._pool.acquire(Request(np.zeros(1, np.int64), ()))
        assert lease is not None, "what just failed left at least a page"
        try:
            self._runner.collect(self._runner.launch([lease]))
        except PassFailed as failed:
            error = failed.__cause__
            raise EngineFault(_broke(error)) from error

    def _not_finite(self) -> NonFiniteError:
        return NonFiniteError(
            "the model gave NaN or infinity for this state or question: its weights may be "
            f"damaged, or too large for {self._runner.model.dtype}."
        )


def _shared_out(share: Share, position: int) -> Reuse:
    """What one of a share's works cost; the trunk is the first one's."""
    work = share.works[position]
    if position:
        others = max(len(work.request.trunk) - work.spent, 0)
        return Reuse(work.spent + work.asked, others, "round", work.choice)
    found = max(work.found or 0, share.lease.start - work.spent)
    return _reuse(work, work.spent + share.tail + work.asked, found)


def _reuse(work: Work, new: int, found: int) -> Reuse:
    return Reuse(new, found, work.source if found else "none", work.choice)


def _too_late(work: Work, now: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the deadline passed after {now - work.submitted:.2f} s of waiting for a round: allow "
        "more time, or ask for less at once."
    )


def _is_out_of_memory(error: BaseException) -> bool:
    # PyTorch has no class of its own for a CPU that is out of memory.
    allocator = "DefaultCPUAllocator"
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or allocator in str(error)


def _broke(error: BaseException | None) -> str:
    return f"the engine broke ({error!r}) and answers nothing any more: load it anew."
