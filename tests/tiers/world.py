"""An engine over host memory and Redis, restarted at will, on a network and a server that fail."""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from flide_agent.client import Client
from flide_agent.runtime import Runtime
from flide_agent.runtime.local import LocalTransport
from flide_agent.runtime.memory import SessionMemory
from flide_cache import HostStore, RestoreModel, Speed, Tier, TieredStore
from flide_cache.link import RedisLink
from flide_cache.records import Records
from flide_cache.redis import RedisStore
from flide_engine.engine import Engine
from flide_engine.lower import Tiers
from tests.agent.sessions.conftest import Stage
from tests.cache import proxy as ways
from tests.cache.proxy import Proxy
from tests.cache.server import RedisServer
from tests.cache.support import PAUSE

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from pathlib import Path

WHIM = random.Random()
"""Hypothesis watches the random numbers that all share."""

SECRET = b"of sixteen bytes at the least"
ALWAYS = {"host": Speed(1e-6, 1e12), "redis": Speed(1e-6, 1e12)}
"""Loading always seems to pay."""


class Faulty(HostStore):
    """Fails at every third turn, before or after it did something."""

    def _load(self, wants: Any, deadline: float, found: Any) -> None:
        whim = WHIM.random()
        if whim < 0.15:
            raise OSError("gone")
        super()._load(wants, deadline, found)
        if whim < 0.3:
            raise OSError("gone too late")

    def _offer(self, values: Any) -> str:
        if WHIM.random() < 0.2:
            raise OSError("full")
        return super()._offer(values)


class World:
    """What a session's contract must hold in.

    Args:
        directory: of the model.
        folder: where the server may write.
        program: the Redis server.
        counts: what the tiers did, over all restarts.

    Attributes:
        stage: the client, its engine of now, and the truth.
    """

    def __init__(self, directory: Path, folder: Path, program: str, counts: Counter[str]) -> None:
        self.directory, self.counts = directory, counts
        self.restarts = 0
        self._always = ExitStack()
        self.server = self._always.enter_context(
            RedisServer(folder, program=program, maxmemory="24mb", maxmemory_policy="allkeys-lru")
        )
        self.net = self._always.enter_context(Proxy(self.server.port))
        self.fresh = self._always.enter_context(Engine.from_pretrained(directory, dtype="float64"))
        self._now = ExitStack()
        runtime = self._begin()
        transport = LocalTransport(runtime, owns_engine=False)
        self.stage = Stage(self.engine, Client(transport=transport), self.fresh)
        self._transport = transport

    def _begin(self) -> Runtime:
        """A process begins: nothing on the device and in memory, and Redis as it is."""
        model = RestoreModel(1.0, ALWAYS)
        link = self._now.enter_context(RedisLink(self.net.url, pause=PAUSE))
        self.host = Faulty(1 << 20)
        redis = RedisStore(link, drain_seconds=0, ttl_seconds=600)
        self.store = TieredStore([Tier(self.host), Tier(redis)], model)
        self._now.callback(self._ended)
        # So small a pool keeps one history, and some states.
        pool_bytes = 64 * self.fresh.pool.page_bytes + 8 * self.fresh.pool.state_bytes
        tiers = Tiers(self.store, model, SECRET)
        self.engine = self._now.enter_context(
            Engine.from_pretrained(
                self.directory, dtype="float64", tiers=tiers, pool_bytes=pool_bytes
            )
        )
        memory = SessionMemory(Records(SECRET, link=link))
        runtime = Runtime(self.engine, memory=memory)
        self._now.callback(runtime.close)
        return runtime

    def _ended(self) -> None:
        """Nothing is left over when a process ends."""
        self.store.close()
        self.engine.pool.clear()
        use = self.engine.pool.use()
        assert (use.pages, use.states, use.pins) == (0, 0, 0)
        for part in self.store.stats().tiers:
            assert (part.pins, part.queued_bytes) == (0, 0)
            for what, count in part.counts.items():
                self.counts[f"{part.name} {what}"] += count

    def restart(self) -> None:
        """The process ends, and another one goes on for the same client."""
        self.undisturbed()
        self._now.close()
        self._transport.runtime = self._begin()
        self.stage.engine = self.engine
        self.restarts += 1

    def close(self) -> None:
        """End everything."""
        self.undisturbed()
        self._now.close()
        self._always.close()

    def undisturbed(self) -> None:
        """The network carries everything."""
        self.net.up = self.net.down = ways.clear

    def disturb(self, what: str) -> None:
        """One bad thing happens, or begins; the one before it is over."""
        self.undisturbed()
        if what in WAYS:
            up, down = WAYS[what]()
            self.net.up, self.net.down = up or ways.clear, down or ways.clear
        elif what == "harm":
            self._harm()
        elif what == "harm host":
            for entry in list(self.host._entries.values())[:3]:
                payload = bytearray(entry.value.payload)
                payload[WHIM.randrange(len(payload))] ^= 1 << WHIM.randrange(8)
                entry.value.payload = memoryview(payload)
        elif what == "stop":
            self.server.pause()
            threading.Timer(0.1, self.server.resume).start()
        elif what == "kill":
            self.server.kill()
            self.server.start()
        elif what == "flush":
            self.server.client.flushall()
        elif what == "cut":
            self.net.cut()

    def _harm(self) -> None:
        """Some of what lies in Redis is cut, changed, or swapped with something else."""
        names = list(self.server.client.scan_iter(count=1_000))
        for name in WHIM.sample(names, min(len(names), 4)):
            blob = self._stored(name)
            match WHIM.randrange(3):
                case 0 if blob:
                    blob[WHIM.randrange(len(blob))] ^= 1 << WHIM.randrange(8)
                case 1:
                    blob = blob[: WHIM.randrange(len(blob) + 1)]
                case _:
                    blob = self._stored(WHIM.choice(names))
            self.server.client.set(name, bytes(blob), ex=600)

    def _stored(self, name: bytes) -> bytearray:
        """The bytes under a name, of which there may be none."""
        blob = self.server.client.get(name)
        return bytearray(blob if isinstance(blob, bytes) else b"")


WAYS: dict[str, Callable[[], tuple[ways.Way | None, ways.Way | None]]] = {
    "delay": lambda: (None, ways.delayed(0, 0.004)),
    "throttle": lambda: (ways.throttled(30e6), ways.throttled(30e6)),
    "corrupt up": lambda: (ways.flipping(0.1), None),
    "corrupt down": lambda: (None, ways.flipping(0.1)),
    "cut up": lambda: (ways.cut_after(WHIM.randrange(500_000)), None),
    "cut down": lambda: (None, ways.cut_after(WHIM.randrange(500_000))),
    "nonsense": lambda: (None, ways.answering(b"$5\r\nabcde\r\n")),
}
FAULTS = (*WAYS, "harm", "harm host", "stop", "kill", "flush", "cut")
