"""What networks do to bytes: never a wrong one, never an exception, never a long wait."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from flide_cache.manifest import PAYLOAD_BYTES
from flide_cache.redis import RedisStore
from flide_cache.testing import put, value_of
from tests.cache import proxy as ways
from tests.cache.proxy import Proxy
from tests.cache.server import RedisServer
from tests.cache.support import SLOW, counted, eventually, right_or_none

if TYPE_CHECKING:
    from flide_cache.base import Value
    from flide_cache.redis import RedisStore
    from tests.cache.proxy import Proxy
    from tests.cache.server import RedisServer


class TestNetwork:
    """Delayed, throttled, cut and corrupted bytes."""

    def test_loads_that_gave_up_leave_nothing_behind(
        self, near: RedisStore, far: RedisStore, net: Proxy, server: RedisServer
    ) -> None:
        """Hundreds of loads that end in the middle of a reply: no later one gets it."""
        far._reads.breaker.failures = 10**9
        values = [value_of(random.randrange(1, 60_000)) for _ in range(20)]
        put(near, *values)
        net.down = ways.delayed(0, 0.004)

        def work(seed: int) -> tuple[int, int]:
            choose = random.Random(seed)
            came = asked = 0
            for _ in range(120):
                some = choose.sample(values, choose.randrange(1, 4))
                came += right_or_none(far, some, time.monotonic() + choose.uniform(0, 0.03))
                asked += len(some)
            return came, asked

        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(work, random.sample(range(10**6), 4)))
        net.down = ways.clear
        eventually(lambda: server.info("clients")["connected_clients"] < 16)

        assert 0 < sum(came for came, _ in results) < sum(asked for _, asked in results)
        assert right_or_none(far, values) == len(values)

    @pytest.mark.parametrize("nbytes", [300, 3 * PAYLOAD_BYTES])
    def test_a_reply_that_drips_ends_at_the_deadline(
        self, near: RedisStore, far: RedisStore, net: Proxy, nbytes: int
    ) -> None:
        """Though every receive brings something."""
        value = value_of(nbytes)
        put(near, value)
        assert right_or_none(far, [value]) == 1
        net.chunk = max(nbytes // 1_000, 1)
        net.down = ways.delayed(0.005, 0.005)
        began = time.monotonic()

        assert right_or_none(far, [value], began + 0.2) == 0
        assert time.monotonic() - began < 0.7

    def test_a_window_that_drips_ends_without_a_deadline(
        self, near: RedisStore, far: RedisStore, net: Proxy
    ) -> None:
        """Each window has its time."""
        value = value_of(4 * PAYLOAD_BYTES)
        put(near, value)
        net.down = ways.throttled(500_000)
        began = time.monotonic()

        assert right_or_none(far, [value]) == 0
        assert time.monotonic() - began < 2 * SLOW + 4 * PAYLOAD_BYTES / 100e6

    def test_flipped_bits_on_the_way_back_are_found(
        self, near: RedisStore, far: RedisStore, net: Proxy
    ) -> None:
        """Also those that break the protocol; and the value in the server is not at fault."""
        far._reads.breaker.failures = 10**9
        values = [value_of(nbytes) for nbytes in (10, 5_000, 70_000, 1_500_000)]
        put(near, *values)
        net.down = ways.flipping(0.05)
        for _ in range(60):
            right_or_none(far, random.sample(values, 3))
            put(near, *values)
        assert far.stats().counts["misses"] > 0
        net.down = ways.clear

        eventually(lambda: far.flush(time.monotonic()))
        put(near, *values)
        assert right_or_none(far, values) == len(values)

    def test_flipped_bits_on_the_way_there_are_found(
        self, near: RedisStore, far: RedisStore, net: Proxy
    ) -> None:
        """Whatever lies in the server then, it is the value or none."""
        far._writes.breaker.failures = 10**9
        net.up = ways.flipping(0.1)
        values = [value_of(random.choice([50, 9_000, 400_000, 1_200_000])) for _ in range(60)]
        for value in values:
            far.offer([value])
        assert far.flush(time.monotonic() + 20)

        came = right_or_none(near, values)
        assert 0 < came < len(values)

    def test_a_publish_cut_anywhere_is_no_value(
        self, near: RedisStore, far: RedisStore, net: Proxy, server: RedisServer
    ) -> None:
        """There is a manifest only where all parts are, and what is left over expires."""
        far._writes.breaker.failures = 10**9
        whole = 2 * PAYLOAD_BYTES + 5_000
        for cut in [0, 1, 30, 100, *(random.randrange(whole + 1_200) for _ in range(30)), whole]:
            value = value_of(2 * PAYLOAD_BYTES + 4_000)
            net.up = ways.cut_after(cut)
            far.offer([value])
            assert far.flush(time.monotonic() + 10)
            net.up = ways.clear
            seen = near.lookup([value.key])

            assert right_or_none(near, [value]) == (seen != [None])
        assert counted(near, "failed:missing") == 0
        assert counted(far, "dropped:failed") > 20
        assert all(server.client.ttl(name) > 0 for name in server.client.scan_iter())

    def test_a_load_cut_anywhere_is_retried_or_a_miss(
        self, near: RedisStore, far: RedisStore, net: Proxy
    ) -> None:
        """And the store is as before: the next load works."""
        far._reads.breaker.failures = 10**9
        values = [value_of(nbytes) for nbytes in (20, 30_000, 1_060_000)]
        put(near, *values)
        for _ in range(25):
            net.down = ways.cut_after(random.choice([0, 5, 500, random.randrange(1_200_000)]))
            right_or_none(far, values)
            net.down = ways.clear
            net.cut()

            assert right_or_none(far, values) == len(values)

    def test_connections_that_were_dropped_are_not_noticed(
        self, near: RedisStore, far: RedisStore, net: Proxy
    ) -> None:
        """A load opens another."""
        value = value_of(5_000)
        put(near, value)
        for _ in range(5):
            assert right_or_none(far, [value]) == 1
            net.cut()
        assert counted(far, "misses") == 0

    def test_many_loads_at_once_all_end(
        self, near: RedisStore, far: RedisStore, net: Proxy
    ) -> None:
        """Twice as many as there are windows, over a network that carries two: right, late or not
        at all, but over; and one that fails is not tried for ever."""
        far._reads.breaker.failures = 10**9
        values = [value_of(4 * PAYLOAD_BYTES) for _ in range(8)]
        put(near, *values)
        net.down = ways.throttled(100e6)
        began = time.monotonic()

        def work(value: Value) -> tuple[int, float]:
            return right_or_none(far, [value], began + 1), time.monotonic() - began

        with ThreadPoolExecutor(8) as threads:
            results = list(threads.map(work, values))
        assert sum(came for came, _ in results) > 0
        assert max(seconds for _, seconds in results) < 2
        net.down = ways.clear
        assert right_or_none(far, values) == 8

    @pytest.mark.parametrize(
        "answer",
        [
            b"-LOADING Redis is loading the dataset in memory\r\n",
            b"-MOVED 3999 127.0.0.1:6381\r\n",
            b"-MASTERDOWN Link with MASTER is down\r\n",
            b"-ERR unknown command\r\n",
            b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
            b"-NOPERM this user has no permissions\r\n",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"$-1\r\n",
            b":7\r\n",
            b"*2\r\n:1\r\n:2\r\n",
            b"$5\r\nabcde\r\n",
            b"$99999999999\r\nab",
            b"\x00\xff\xfe",
        ],
    )
    def test_any_answer_is_at_worst_a_miss(
        self, near: RedisStore, far: RedisStore, net: Proxy, answer: bytes
    ) -> None:
        """Errors, nonsense, and replies of another kind than asked for."""
        value = value_of(3_000)
        put(near, value)
        net.down = ways.answering(answer)
        assert right_or_none(far, [value], time.monotonic() + 0.1) == 0
        assert far.lookup([value.key], time.monotonic() + 0.1) == [None]
        far.offer([value_of(100)])
        far.discard([value.key])
