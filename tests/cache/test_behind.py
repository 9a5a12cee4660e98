"""The breaker and the write-behind queue by themselves."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from flide_cache.behind import Job, WriteBehind
from flide_cache.breaker import Breaker
from flide_cache.errors import Paused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def lets_through(breaker: Breaker) -> bool:
    """Whether a call may be made."""
    try:
        breaker.check()
    except Paused:
        return False
    return True


class TestBreaker:
    """Opens, tries, closes."""

    @pytest.fixture
    def clock(self) -> Clock:
        """Its time."""
        return Clock()

    @pytest.fixture
    def breaker(self, clock: Clock) -> Breaker:
        """Opens after three failures, for ten seconds and at most for 45."""
        return Breaker(failures=3, pause=10, longest=45, clock=clock)

    def test_failures_in_a_row_open_it(self, breaker: Breaker) -> None:
        """A success between them begins the row anew."""
        for outcome in "ffsffsff":
            assert lets_through(breaker)
            breaker.failed() if outcome == "f" else breaker.succeeded()
        assert lets_through(breaker)
        breaker.failed()

        assert breaker.open
        assert not lets_through(breaker)
        assert breaker.remaining == 10

    def test_tries_come_one_at_a_time_and_ever_more_rarely(
        self, breaker: Breaker, clock: Clock
    ) -> None:
        """Until one succeeds."""
        for _ in range(3):
            breaker.failed()
        for pause in (10, 20, 40, 45, 45):
            assert breaker.remaining == pytest.approx(pause)
            clock.now += pause - 0.1
            assert not lets_through(breaker)
            clock.now += 0.2
            assert [lets_through(breaker) for _ in range(3)] == [True, False, False]
            breaker.failed()
        clock.now += 45
        assert lets_through(breaker)
        breaker.succeeded()

        assert not breaker.open
        assert all(lets_through(breaker) for _ in range(5))
        for _ in range(3):
            breaker.failed()
        assert breaker.remaining == pytest.approx(10), "as at first"

    def test_a_try_that_never_ends_is_not_the_last(self, breaker: Breaker, clock: Clock) -> None:
        """Its thread may have been killed."""
        for _ in range(3):
            breaker.failed()
        clock.now = 11
        assert lets_through(breaker)
        clock.now = 30
        assert lets_through(breaker)

    def test_calls_that_were_on_their_way_do_not_count(
        self, breaker: Breaker, clock: Clock
    ) -> None:
        """A dozen that fail together are one outage."""
        for _ in range(12):
            breaker.check()
        for _ in range(12):
            clock.now += 0.1
            breaker.failed()
        assert breaker.remaining == pytest.approx(10 - 0.9)

    def test_it_can_be_opened_at_once(self, breaker: Breaker, clock: Clock) -> None:
        """For as long as is said."""
        breaker.failed(pause=30)
        clock.now = 29
        assert not lets_through(breaker)
        clock.now = 31
        assert lets_through(breaker)


class TestWriteBehind:
    """Jobs in their turn."""

    @pytest.fixture
    def gate(self) -> threading.Event:
        """What jobs wait for."""
        return threading.Event()

    @pytest.fixture
    def queue(self, gate: threading.Event) -> Iterator[WriteBehind]:
        """Room for a hundred bytes, and a job that runs already."""
        queue = WriteBehind(100, lambda: 0.0, "test")
        queue.put([Job("first", 10, gate.wait)])
        while not queue._running:
            time.sleep(0.001)
        yield queue
        gate.set()
        queue.close()
        assert not queue._thread.is_alive()
        assert queue.queued_bytes == 0

    def test_jobs_run_in_order_and_newer_ones_replace_older(
        self, queue: WriteBehind, gate: threading.Event
    ) -> None:
        """A replaced job never runs; its successor waits at the end."""
        ran: list[str] = []
        for name, slot in (("a", 1), ("b", 2), ("c", 3), ("d", 1), ("e", 2), ("f", 1)):
            queue.put([Job(slot, 20, lambda name=name: ran.append(name))])  # type: ignore[misc]
        gate.set()

        assert queue.flush(time.monotonic() + 5)
        assert ran == ["c", "e", "f"]

    def test_bytes_are_bounded(self, queue: WriteBehind, gate: threading.Event) -> None:
        """The running job counts; a batch has room or it has not; what is replaced makes room."""
        assert queue.put([Job(1, 60, int), Job(2, 30, int)]) == 0
        assert queue.queued_bytes == 100
        assert queue.put([Job(3, 1, int)]) is None
        assert queue.put([Job(3, 0, int), Job(4, 1, int)]) is None
        assert queue.put([Job(2, 31, int)]) is None
        assert queue.put([Job(1, 50, int), Job(2, 40, int)]) == 2
        assert queue.put([Job(5, 5, int), Job(5, 5, int)]) is None
        gate.set()

        assert queue.flush(time.monotonic() + 5)
        assert queue.queued_bytes == 0
        assert queue.put([Job(1, 100, int)]) == 0

    def test_a_flush_ends_at_its_deadline(self, queue: WriteBehind) -> None:
        """And says that it did."""
        began = time.monotonic()

        assert not queue.flush(began + 0.05)
        assert 0.04 < time.monotonic() - began < 1

    def test_dropping_waits_for_the_running_job(
        self, queue: WriteBehind, gate: threading.Event
    ) -> None:
        """After it nothing that was queued before will be written."""
        ran: list[int] = []
        queue.put([Job(i, 5, lambda i=i: ran.append(i)) for i in range(5)])  # type: ignore[misc]
        threading.Timer(0.05, gate.set).start()

        assert queue.drop() == 5
        assert gate.is_set()
        assert queue.flush(time.monotonic() + 5)
        assert ran == []

    def test_it_waits_while_it_is_told_to(self) -> None:
        """What is queued meanwhile is written afterwards."""
        until = time.monotonic() + 0.1
        queue = WriteBehind(10, lambda: max(0.0, until - time.monotonic()), "test")
        ran: list[float] = []
        queue.put([Job(1, 1, lambda: ran.append(time.monotonic()))])

        assert queue.flush(time.monotonic() + 5)
        assert ran[0] >= until
        queue.close()

    def test_closing_while_waiting_ends_the_thread(self) -> None:
        """However long the wait would be."""
        queue = WriteBehind(10, lambda: 1_000.0, "test")
        queue.put([Job(1, 1, int)])

        assert queue.close() == 1
        assert queue.put([Job(1, 1, int)]) is None
        assert queue.close() == 0

    def test_many_threads_put_and_nothing_is_lost(self) -> None:
        """Each job runs once, and the books agree."""
        queue = WriteBehind(1_000, lambda: 0.0, "test")
        ran: list[int] = []

        def work(base: int) -> int:
            taken = 0
            for number in range(base, base + 300):
                job = Job(number, 7, lambda number=number: ran.append(number))  # type: ignore[misc]
                taken += queue.put([job]) is not None
            return taken

        with ThreadPoolExecutor(4) as threads:
            taken = sum(threads.map(work, range(0, 1_200, 300)))
        assert queue.flush(time.monotonic() + 5)

        assert len(ran) == len(set(ran)) == taken
        assert queue.queued_bytes == 0
        queue.close()
