"""Tiers in front of one another: the contract, what moves where, and all mixtures."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from flide_cache import Admission, HostStore, RestoreModel, Speed, Tier, TieredStore, Want
from flide_cache.link import RedisLink
from flide_cache.redis import RedisStore
from flide_cache.testing import CheckpointStoreTests, StoreMachine, load_one, put, value_of
from tests.cache.support import RawHost, RawRedis, right_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flide_cache.base import CheckpointStore
    from flide_cache.testing import Raw
    from tests.cache.server import RedisServer

EVERYTHING = Admission(stride=1)
FATES = ("host", "redis", "both", "neither", "harmed above", "harmed below")


class RawBelow:
    """What lies in Redis, once memory has forgotten it."""

    def __init__(self, host: HostStore, server: RedisServer) -> None:
        self._host = host
        self._below = RawRedis(server)

    def get(self, key: bytes) -> list[bytes]:
        """From Redis."""
        self._host.discard([key])
        return self._below.get(key)

    def set(self, key: bytes, pieces: Sequence[bytes]) -> None:
        """In Redis."""
        self._below.set(key, pieces)


class RawEither:
    """What lies in memory or in Redis, by chance."""

    def __init__(self, host: HostStore, server: RedisServer) -> None:
        self._raws: list[Raw] = [RawHost(host), RawRedis(server)]
        self._chosen = self._raws[0]

    def get(self, key: bytes) -> list[bytes]:
        """From one of them."""
        self._chosen = random.choice(self._raws)
        return self._chosen.get(key)

    def set(self, key: bytes, pieces: Sequence[bytes]) -> None:
        """In the same."""
        self._chosen.set(key, pieces)


@pytest.fixture
def host() -> HostStore:
    """The upper tier."""
    return HostStore(64 << 20)


@pytest.fixture
def store(host: HostStore, link: RedisLink) -> Iterator[TieredStore]:
    """Memory in front of Redis; only multiples of 256 tokens go there."""
    with TieredStore([Tier(host, EVERYTHING), Tier(RedisStore(link))]) as store:
        yield store


class TestTieredStore(CheckpointStoreTests):
    """The contract."""

    @pytest.fixture
    def store(self, host: HostStore, link: RedisLink) -> Iterator[TieredStore]:
        """Both take everything."""
        tiers = [Tier(host, EVERYTHING), Tier(RedisStore(link), EVERYTHING)]
        with TieredStore(tiers) as store:
            yield store

    @pytest.fixture
    def raw(self, host: HostStore, server: RedisServer) -> Raw:
        """The lower tier, without the upper one's help."""
        return RawBelow(host, server)


class TestMoves:
    """What is where."""

    def test_what_is_found_below_is_kept_above(self, store: TieredStore, host: HostStore) -> None:
        """A copy, with all that was said about it, under the tenant and parent of who asked."""
        value = value_of(1_200_000, position=1_024, seconds=0.5)
        put(store, value)
        host.clear()
        assert [held and held.tier for held in store.lookup([value.key])] == ["redis"]

        assert load_one(store, value.key, value.nbytes) == bytes(value.payload)
        (held,) = store.lookup([value.key])
        assert held is not None
        assert (held.tier, held.position, held.seconds) == ("host", 1_024, 0.5)
        assert load_one(host, value.key, value.nbytes) == bytes(value.payload)

    def test_who_loads_owns_the_buffer_alone(self, store: TieredStore, host: HostStore) -> None:
        """What is kept above does not change with what the borrower writes."""
        value = value_of(50_000)
        put(store, value)
        host.clear()
        for filler in range(3):
            into = np.zeros(50_000, np.uint8)
            store.load([Want(value.key, into.data)])
            into[:] = filler

            assert load_one(host, value.key, 50_000) == bytes(value.payload)

    def test_lower_tiers_take_their_places_only(
        self, store: TieredStore, server: RedisServer
    ) -> None:
        """Multiples of 256 tokens; the upper one takes all."""
        values = [value_of(100, position=position) for position in (256, 320, 512, 500)]
        put(store, *values)

        raw = RawRedis(server)
        assert [bool(raw.get(value.key)) for value in values] == [True, False, True, False]
        assert right_or_none(store, values) == 4

    def test_what_no_tier_takes_is_refused(self, link: RedisLink) -> None:
        """And counted."""
        with TieredStore([Tier(RedisStore(link), Admission(least_position=1_000))]) as store:
            assert not store.offer([value_of(10, position=768)])
            assert store.offer([value_of(10, position=1_024)])
            assert store.stats().counts["dropped:not admitted"] == 1

    def test_values_survive_the_process(self, server: RedisServer) -> None:
        """Another one, with empty memory, finds them in Redis."""
        values = [value_of(random.randrange(1, 2_000_000)) for _ in range(5)]
        for _ in range(2):
            with (
                RedisLink(server.url, timeout=5) as link,
                TieredStore([Tier(HostStore(1 << 24)), Tier(RedisStore(link))]) as store,
            ):
                found = right_or_none(store, values)
                put(store, *values)
        assert found == 5

    @pytest.mark.parametrize("seed", range(6))
    def test_every_mixture_of_tiers_is_right(
        self, store: TieredStore, host: HostStore, server: RedisServer, seed: int
    ) -> None:
        """Each value in memory, in Redis, in both, in neither, or harmed in one of them."""
        choose = random.Random(seed * 1_000 + random.randrange(1_000))
        values = [value_of(choose.choice([30, 4_000, 1_100_000])) for _ in range(30)]
        put(store, *values)
        below, there = RawRedis(server), []
        for value in values:
            fate = choose.choice(
                ["host", "redis", "both", "neither", "harmed above", "harmed below"]
            )
            if fate in ("redis", "neither"):
                host.discard([value.key])
            if fate in ("host", "neither"):
                server.client.unlink(*below.names(value.key))
            if fate.startswith("harmed"):
                raw: Raw = RawHost(host) if fate == "harmed above" else RawBelow(host, server)
                *pieces, last = raw.get(value.key)
                raw.set(value.key, [*pieces, last[:-1] + bytes([last[-1] ^ 1])])
            if fate not in ("neither", "harmed below"):
                there.append(value.key)

        assert right_or_none(store, values) == len(there)
        assert right_or_none(host, values) == len(there), "what came from below is above now"

    def test_a_lower_tier_that_is_down_is_not_missed(self, host: HostStore) -> None:
        """The upper one works as if it were alone."""
        link = RedisLink("redis://127.0.0.1:1")
        with link, TieredStore([Tier(host), Tier(RedisStore(link, drain_seconds=0))]) as store:
            values = [value_of(10_000) for _ in range(5)]
            assert store.offer(values)
            assert right_or_none(store, [*values, value_of(5)]) == 5
            assert not store.clear()
            assert right_or_none(store, values) == 0


class TestModel:
    """What is learnt from loads."""

    def test_loads_teach_the_model(self, host: HostStore, link: RedisLink) -> None:
        """Tier by tier; misses teach nothing."""
        model = RestoreModel(1_000, {"host": Speed(0, 1e12), "redis": Speed(0, 1e12)})
        with TieredStore([Tier(host), Tier(RedisStore(link))], model) as store:
            values = [value_of(1_000_000) for _ in range(10)]
            before = [model.predicted_load_seconds(10**9, tier) for tier in ("host", "redis")]
            right_or_none(store, values)
            assert before == [
                model.predicted_load_seconds(10**9, tier) for tier in ("host", "redis")
            ]
            put(store, *values)
            host.clear()
            for _ in range(2):
                for value in values:
                    right_or_none(store, [value])

        assert model.predicted_load_seconds(10**9, "host") > before[0]
        assert model.predicted_load_seconds(10**9, "redis") > before[1]

    def test_a_tier_without_a_prior_is_an_error(self, host: HostStore) -> None:
        """At once, not at the first load."""
        with pytest.raises(ValueError, match="the tier 'host' is not among"):
            TieredStore([Tier(host)], RestoreModel(1, {"redis": Speed(0, 1)}))


class TieredMachine(StoreMachine):
    """A small memory in front of a server."""

    server: ClassVar[RedisServer]

    def make(self) -> tuple[CheckpointStore, Raw]:
        """An empty server, and memory for a few values."""
        self.server.client.flushall()
        host = HostStore(2 << 20)
        self.link = RedisLink(self.server.url, timeout=5)
        store = TieredStore([Tier(host), Tier(RedisStore(self.link))])
        return store, RawEither(host, self.server)

    def teardown(self) -> None:
        """Close the link after the store."""
        super().teardown()
        self.link.close()


def test_random_use(server: RedisServer) -> None:
    """A value is right or it is None, in whatever tier it is."""
    TieredMachine.server = server
    run_state_machine_as_test(
        TieredMachine, settings=settings(max_examples=12, stateful_step_count=25, deadline=None)
    )
