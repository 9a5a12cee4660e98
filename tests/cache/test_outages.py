"""Servers that are away, stop, restart, forget, are full or say no."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from flide_cache.link import TIMEOUT, RedisLink
from flide_cache.manifest import PAYLOAD_BYTES
from flide_cache.redis import RedisStore
from flide_cache.testing import put, value_of
from tests.cache.server import RedisServer, free_port
from tests.cache.support import PAUSE, counted, eventually, right_or_none

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class TestServer:
    """A server that is away, stops, restarts, forgets, is full or says no."""

    def test_down_at_the_start_is_a_warning(
        self, tmp_path: Path, program: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Everything is a miss, soon; and when the server comes, everything works."""
        port = free_port()
        began = time.monotonic()
        with RedisLink(f"redis://u:sesame@127.0.0.1:{port}", pause=PAUSE) as link:
            assert "without Redis until it answers" in caplog.text
            assert "sesame" not in caplog.text
        with RedisLink(f"redis://127.0.0.1:{port}", pause=PAUSE) as link, RedisStore(link) as store:
            value = value_of(2_000_000)
            for _ in range(8):
                assert right_or_none(store, [value]) == 0
            assert time.monotonic() - began < 3
            assert store.stats().paused_seconds > 0

            with RedisServer(tmp_path, port, program):
                eventually(lambda: store.offer([value]) and right_or_none(store, [value]) == 1)

    def test_a_stopped_server_costs_little_and_comes_back(self, own: RedisServer) -> None:
        """No step waits long, the breaker opens within five, offers never wait."""
        with RedisLink(own.url, pause=PAUSE) as link, RedisStore(link, drain_seconds=0) as store:
            value = value_of(1_000_000)
            put(store, value)
            own.pause()
            steps = []
            for _ in range(7):
                began = time.monotonic()
                right_or_none(store, [value])
                steps.append(time.monotonic() - began)
            assert max(steps) < TIMEOUT + 0.5
            assert max(steps[5:]) < TIMEOUT
            assert 4 <= counted(store, "failed:unreachable") <= 5

            offers = []
            for _ in range(100):
                other = value_of(100_000, session="s")
                began = time.monotonic()
                assert store.offer([other])
                offers.append(time.monotonic() - began)
            assert sorted(offers)[90] < 0.05
            assert store.stats().queued_bytes <= 200_000

            own.resume()
            eventually(lambda: right_or_none(store, [value]) == 1, 5)
            assert store.flush(time.monotonic() + 5)
            assert right_or_none(store, [other]) == 1
            assert store.stats().paused_seconds == 0

    def test_a_killed_server_that_comes_back_empty(self, own: RedisServer) -> None:
        """Is cold, and fills again."""
        with RedisLink(own.url, pause=PAUSE) as link, RedisStore(link) as store:
            values = [value_of(700_000) for _ in range(4)]
            put(store, *values)
            own.kill()
            assert right_or_none(store, values) == 0
            store.offer(values)
            own.start()

            eventually(lambda: store.flush(time.monotonic() + 1))
            assert right_or_none(store, values) in range(5)
            store.offer(values)
            eventually(
                lambda: store.flush(time.monotonic() + 1) and right_or_none(store, values) == 4
            )

    def test_what_is_evicted_between_lookup_and_load(
        self, near: RedisStore, server: RedisServer
    ) -> None:
        """Any part, the manifest or all of it: a miss, and no manifest stays without its parts."""
        value = value_of(3 * PAYLOAD_BYTES)
        for lost in range(5):
            put(near, value)
            (held,) = near.lookup([value.key])
            assert held is not None
            names = sorted(server.client.scan_iter())
            assert len(names) == 4
            server.client.unlink(*(names if lost == 4 else names[lost : lost + 1]))

            assert right_or_none(near, [value]) == 0
            assert near.flush(time.monotonic() + 5)
            assert near.lookup([value.key]) == [None]

    def test_flushed_under_load(self, near: RedisStore, server: RedisServer) -> None:
        """While four threads write and read."""
        values = [value_of(random.choice([100, 40_000, 1_100_000])) for _ in range(12)]
        stop = threading.Event()

        def flush() -> None:
            while not stop.wait(0.01):
                server.client.flushall()

        flusher = threading.Thread(target=flush)
        flusher.start()

        def work(seed: int) -> None:
            choose = random.Random(seed)
            for _ in range(40):
                near.offer(choose.sample(values, 3))
                right_or_none(near, choose.sample(values, 3))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        stop.set()
        flusher.join()
        put(near, *values)
        assert right_or_none(near, values) == len(values)

    def test_a_small_server_that_evicts(self, tmp_path: Path, program: str) -> None:
        """Many times its memory is written: what it still has is right."""
        limit = 24 << 20
        with (
            RedisServer(
                tmp_path, program=program, maxmemory=str(limit), maxmemory_policy="allkeys-lru"
            ) as server,
            RedisLink(server.url, timeout=5) as link,
            RedisStore(link) as store,
        ):
            values = [value_of(random.choice([200_000, 2_500_000])) for _ in range(60)]
            for start in range(0, 60, 6):
                put(store, *values[start : start + 6])
                right_or_none(store, random.sample(values[: start + 6], 6))
                assert server.info("memory")["used_memory"] <= 1.1 * limit

            assert 0 < right_or_none(store, values) < 60

    def test_a_server_that_is_full_is_read_only_for_a_while(
        self, tmp_path: Path, program: str
    ) -> None:
        """Writes stop for half a minute, reads go on."""
        with (
            RedisServer(
                tmp_path, program=program, maxmemory="12mb", maxmemory_policy="noeviction"
            ) as server,
            RedisLink(server.url, timeout=5) as link,
            RedisStore(link, drain_seconds=0) as store,
        ):
            kept = value_of(2_000_000)
            put(store, kept)
            store.offer([value_of(8_000_000), value_of(8_000_000), value_of(8_000_000)])
            eventually(lambda: counted(store, "failed:full") == 1)

            assert right_or_none(store, [kept]) == 1
            assert 25 < store.stats().paused_seconds <= 30
            assert counted(store, "failed:full") == 1

    def test_a_replica_that_takes_no_writes(self, own: RedisServer) -> None:
        """As after a failover: values that are there are read, and writes come back."""
        with RedisLink(own.url, pause=PAUSE) as link, RedisStore(link, drain_seconds=0) as store:
            kept, later = value_of(10_000), value_of(20_000)
            put(store, kept)
            own.client.replicaof("127.0.0.1", str(free_port()))
            store.offer([later])

            eventually(lambda: counted(store, "failed:refused") == 1)
            assert right_or_none(store, [kept]) == 1
            own.client.replicaof("NO", "ONE")
            eventually(lambda: store.offer([later]) and right_or_none(store, [later]) == 1)

    def test_two_keys_under_one_name_are_told_apart(
        self, near: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If a hash ever collided, or was made to: a miss."""
        monkeypatch.setattr("flide_cache.manifest._name", lambda key: "the same")
        one, other = value_of(6_000), value_of(6_000)
        put(near, one)

        assert right_or_none(near, [other]) == 0
        assert counted(near, "failed:foreign") == 1
