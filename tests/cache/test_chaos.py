"""Everything at once: four threads on two tiers, while network and server do their worst."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from flide_cache import HostStore, RestoreModel, Tier, TieredStore
from flide_cache.link import RedisLink
from flide_cache.redis import RedisStore
from flide_cache.testing import value_of
from tests.cache import proxy as ways
from tests.cache.proxy import Proxy
from tests.cache.support import PAUSE, eventually, right_or_none

if TYPE_CHECKING:
    from flide_cache.base import Value
    from tests.cache.server import RedisServer

SECONDS = 2.5


def disturb(net: Proxy, server: RedisServer) -> None:
    """Do one bad thing, chosen by chance; the one before it is over."""
    net.up = net.down = ways.clear
    match random.randrange(8):
        case 0:
            net.down = ways.delayed(0, 0.01)
        case 1:
            net.down = ways.flipping(0.05)
        case 2:
            net.up = ways.flipping(0.05)
        case 3:
            net.down = ways.cut_after(random.randrange(3_000_000))
        case 4:
            net.down = ways.throttled(20e6)
        case 5:
            server.client.flushall()
        case 6:
            net.cut()
        case 7:
            server.pause()
            time.sleep(0.3)
            server.resume()


def use(store: TieredStore, values: list[Value], until: float) -> int:
    """Offer, discard and load by chance; how many loads came, each right."""
    came = 0
    while time.monotonic() < until:
        some = random.sample(values, 3)
        match random.randrange(10):
            case 0 | 1 | 2:
                store.offer(some)
            case 3:
                store.discard([some[0].key])
            case _:
                patience = random.choice([0.002, 0.05, 1])
                came += right_or_none(store, some, time.monotonic() + patience)
    return came


def test_no_byte_is_ever_wrong(own: RedisServer) -> None:
    """Nothing is raised, nothing is left over, and afterwards all is well."""
    before = threading.active_count()
    own.client.config_set("maxmemory", 100 << 20)
    own.client.config_set("maxmemory-policy", "allkeys-lru")
    values = [
        value_of(
            random.choice([500, 40_000, 1_100_000]),
            tenant=random.choice("abc"),
            seconds=random.random(),
        )
        for _ in range(40)
    ]
    with (
        Proxy(own.port) as net,
        RedisLink(net.url, pause=PAUSE) as link,
        TieredStore(
            [Tier(HostStore(6 << 20, tenant_bytes=4 << 20)), Tier(RedisStore(link))],
            RestoreModel(1_000),
        ) as store,
    ):
        until = time.monotonic() + SECONDS
        with ThreadPoolExecutor(4) as threads:
            users = [threads.submit(use, store, values, until) for _ in range(4)]
            while time.monotonic() < until:
                disturb(net, own)
                time.sleep(random.uniform(0.05, 0.3))
            assert sum(user.result() for user in users) > 0
        net.up = net.down = ways.clear
        eventually(
            lambda: (
                store.offer(values)
                and store.flush(time.monotonic() + 1)
                and right_or_none(store, values) == len(values)
            )
        )
        stats = store.stats()
    for tier in stats.tiers:
        assert "failed:unexpected" not in tier.counts
        assert (tier.pins, tier.queued_bytes) == (0, 0)
    eventually(lambda: threading.active_count() <= before)
