"""The Redis tier: the contract, and what lies in the server."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, ClassVar

import msgpack
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from flide_cache.codec import HEADER_BYTES, Kind, Label, join
from flide_cache.link import RedisLink
from flide_cache.manifest import (
    PART_BYTES,
    PAYLOAD_BYTES,
    Names,
)
from flide_cache.redis import RedisStore
from flide_cache.testing import CheckpointStoreTests, StoreMachine, load_one, put, value_of
from tests.cache.support import RawRedis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flide_cache.base import CheckpointStore
    from flide_cache.testing import Raw
    from tests.cache.server import RedisServer


class TestRedisStore(CheckpointStoreTests):
    """The contract."""

    @pytest.fixture
    def store(self, link: RedisLink) -> Iterator[RedisStore]:
        """An empty store."""
        with RedisStore(link) as store:
            yield store

    @pytest.fixture
    def raw(self, server: RedisServer) -> Raw:
        """By another client."""
        return RawRedis(server)


@pytest.fixture
def store(link: RedisLink) -> Iterator[RedisStore]:
    """A store whose values live a hundred seconds."""
    with RedisStore(link, ttl_seconds=100) as store:
        yield store


@pytest.fixture
def raw(server: RedisServer) -> RawRedis:
    """Past the store."""
    return RawRedis(server)


class TestLayout:
    """What lies in the server."""

    @pytest.mark.parametrize("nbytes", [1, PAYLOAD_BYTES, PAYLOAD_BYTES + 1, 5 * PAYLOAD_BYTES - 7])
    def test_parts_are_full_but_the_last(
        self, store: RedisStore, raw: RawRedis, nbytes: int
    ) -> None:
        """Header included just under a megabyte, so that no allocator rounds it up by a quarter."""
        value = value_of(nbytes)
        put(store, value)
        *parts, manifest = raw.get(value.key)

        sizes = [len(part) for part in parts]
        full, rest = divmod(nbytes, PAYLOAD_BYTES)
        assert sizes == [PART_BYTES] * full + ([rest + HEADER_BYTES] if rest else [])
        assert PART_BYTES < 1 << 20
        assert b"".join(part[HEADER_BYTES:] for part in parts) == bytes(value.payload)
        assert len(manifest) < 4_096

    def test_everything_expires(self, store: RedisStore, server: RedisServer) -> None:
        """From the moment it is written, and parts not after their manifest."""
        put(store, *(value_of(1_500_000) for _ in range(3)))
        names = list(server.client.scan_iter())

        assert len(names) == 9
        assert all(98_000 < server.client.pttl(name) <= 100_000 for name in names)

    def test_values_that_are_read_live_on(
        self, store: RedisStore, server: RedisServer, raw: RawRedis
    ) -> None:
        """In the second half of their time, and also where a time to live was lost."""
        value = value_of(1_500_000)
        put(store, value)
        for seconds, later in ((60, 60), (30, 100), (None, 100)):
            for name in raw.names(value.key):
                if seconds is None:
                    server.client.persist(name)
                else:
                    server.client.expire(name, seconds)
            assert load_one(store, value.key, value.nbytes) is not None
            assert store.flush(time.monotonic() + 5)
            times = [server.client.ttl(name) for name in raw.names(value.key)]

            assert times == [pytest.approx(later, abs=2)] * 3

    @pytest.mark.parametrize(
        "said",
        [
            [],
            {},
            None,
            [2, 2, 256, 9, 1.0, bytes(16)],
            [1, 0, 256, 9, 1.0, bytes(16)],
            [1, 9, 256, 9, 1.0, bytes(16)],
            [1, 2, 256, 0, 1.0, bytes(16)],
            [1, 2, 256, 9, 1, bytes(16)],
            [1, 2, "256", 9, 1.0, bytes(16)],
            [1, 2, 256, 9, 1.0],
            [1, 2, 256, 9, 1.0, bytes(16), 0],
        ],
    )
    def test_a_manifest_of_another_kind_is_a_miss(
        self, store: RedisStore, server: RedisServer, said: object
    ) -> None:
        """Though it was sealed with the right key, as another version might."""
        key, payload = secrets.token_bytes(32), msgpack.packb(said)
        blob = join(key, Label.whole(Kind.MANIFEST, 0, len(payload)), payload)
        server.client.set(Names("fc1").manifest(key), blob)

        assert store.lookup([key]) == [None]
        assert store.stats().counts["failed:damaged"] == 1

    def test_names_give_nothing_away(self, store: RedisStore, server: RedisServer) -> None:
        """Neither keys, nor tenants, nor sessions, in names or in what is stored."""
        key = secrets.token_bytes(32)
        value = value_of(900, key=key, tenant="a-tenant", session="a-session")
        put(store, value)
        stored = b"".join(
            name + (server.client.get(name) or b"") for name in server.client.scan_iter()
        )

        assert stored.startswith(b"fc1:")
        for told in (key, key.hex().encode(), b"a-tenant", b"a-session"):
            assert told not in stored

    def test_replicas_that_computed_other_bits_do_not_mix(
        self, link: RedisLink, server: RedisServer
    ) -> None:
        """A reader gets the value of one of them, whole, whoever wrote last."""
        key = secrets.token_bytes(32)
        values = [value_of(2_500_000, key=key) for _ in range(2)]
        with RedisStore(link) as one, RedisStore(link) as two:
            for _ in range(5):
                assert one.offer(values[:1])
                assert two.offer(values[1:])
                assert one.flush(time.monotonic() + 5)
                assert two.flush(time.monotonic() + 5)
                found = load_one(one, key, 2_500_000)

                assert found in [bytes(value.payload) for value in values]
                server.client.unlink(Names("fc1").manifest(key))

    def test_a_value_that_is_there_is_not_written_again(
        self, store: RedisStore, server: RedisServer
    ) -> None:
        """By any replica: only its time to live is renewed."""
        value = value_of(3_000_000)
        put(store, value)
        before = server.info("stats")["total_net_input_bytes"]
        put(store, value)

        assert server.info("stats")["total_net_input_bytes"] - before < 10_000

    def test_a_value_with_a_part_gone_is_written_again(
        self, store: RedisStore, server: RedisServer, raw: RawRedis
    ) -> None:
        """Before anybody misses it."""
        value = value_of(3_000_000)
        put(store, value)
        server.client.unlink(raw.names(value.key)[1])
        put(store, value)

        assert load_one(store, value.key, value.nbytes) == bytes(value.payload)
        assert "misses" not in store.stats().counts

    def test_clear_removes_values_of_its_space_only(
        self, link: RedisLink, server: RedisServer
    ) -> None:
        """Not those of others, however they are called."""
        others = ["fc1", "fc1:", "fc1x:m:1", "fc:m:1", "fc1:r:1", "xfc1:m:1", "fc1.m:1", "FC1:m:1"]
        for name in others:
            server.client.set(name, b"theirs")
        with RedisStore(link) as ours, RedisStore(link, space="fc1.b") as theirs:
            kept = value_of(50)
            put(theirs, kept)
            put(ours, *(value_of(1_100_000) for _ in range(7)))
            assert ours.clear()

            assert load_one(theirs, kept.key, 50) == bytes(kept.payload)
        names = {name.decode() for name in server.client.scan_iter()}
        assert {name for name in names if not name.startswith("fc1.b:")} == set(others)

    @pytest.mark.parametrize("space", ["", "a:b", "a*", "ä", "a b", "[a]"])
    def test_a_space_that_is_no_name_is_an_error(self, link: RedisLink, space: str) -> None:
        """It would clear what is not its own."""
        with pytest.raises(ValueError, match="a space is letters"):
            RedisStore(link, space=space)


class RedisMachine(StoreMachine):
    """Alone with a server that keeps everything: nothing may be missing."""

    forgets = False
    server: ClassVar[RedisServer]

    def make(self) -> tuple[CheckpointStore, Raw]:
        """An empty server."""
        self.server.client.flushall()
        self.link = RedisLink(self.server.url, timeout=5)
        return RedisStore(self.link), RawRedis(self.server)

    def teardown(self) -> None:
        """Close the link after the store."""
        super().teardown()
        self.link.close()


def test_random_use(server: RedisServer) -> None:
    """A value is right, or it is gone for a reason."""
    RedisMachine.server = server
    run_state_machine_as_test(
        RedisMachine, settings=settings(max_examples=12, stateful_step_count=25, deadline=None)
    )
