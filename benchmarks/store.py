"""The checkpoint store against a real Redis server on this machine: `python -m benchmarks.store`.

Sizes are those of Qwen3.5-0.8B: a state of 18 MiB, and 12,288 bytes of keys and values a token. The
bounds leave about a factor of two for slow machines; all bytes that come back are checked.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.report import Figure, show, write
from flide_cache import HostStore, Kind, Want
from flide_cache.link import RedisLink
from flide_cache.manifest import PART_BYTES
from flide_cache.redis import RedisStore
from flide_cache.testing import buffer_for, namespace, put, value_of
from tests.cache.server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flide_cache.base import CheckpointStore, Value

STATE = 18 << 20
TOKEN = 12_288
SEGMENT = 256
STEP = 320
LONG = 20_000
STOPPED_SECONDS = 5.0
REPEATS = 7


def timed(call: Callable[[], object], repeats: int = REPEATS) -> list[float]:
    """Seconds that each of some calls took."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def history(tokens: int, session: str = "") -> list[Value]:
    """A checkpoint after so many tokens: its pages, and its state."""
    pages = [
        value_of(SEGMENT * TOKEN, kind=Kind.PAGES, position=end, seconds=0)
        for end in range(SEGMENT, tokens + 1, SEGMENT)
    ]
    return [*pages, value_of(STATE, position=pages[-1].position, session=session)]


def load(store: CheckpointStore, values: list[Value], into: list[memoryview]) -> float:
    """Seconds to load values, all of which must come and be right."""
    wants = [Want(value.key, buffer) for value, buffer in zip(values, into, strict=True)]
    began = time.perf_counter()
    found = store.load(wants)
    seconds = time.perf_counter() - began
    assert None not in found
    for value, buffer in zip(values, into, strict=True):
        assert buffer == value.payload
    return seconds


def hashing() -> Iterator[Figure]:
    """Names of the blocks of a long history."""
    space = namespace()
    tokens = np.random.default_rng().integers(0, 150_000, 100_000)
    best = min(timed(lambda: space.chain(tokens)))
    yield Figure("keys", "chain of 100,000 tokens", 1e3 * best, "ms", at_most=5)
    payload = value_of(STATE).payload
    best = min(timed(lambda: type(value_of(1))(bytes(32), payload, Kind.STATE, 0)))
    yield Figure("keys", "checksum of a state", 1e3 * best, "ms", at_most=4)


def writing(server: RedisServer, link: RedisLink, store: RedisStore) -> Iterator[Figure]:
    """Values into Redis."""
    part = bytes(PART_BYTES)
    command = ("SET", "fc1:bench", part, "EX", 60)
    best = min(timed(lambda: link.writes.run([command], nbytes=len(part)), 50))
    yield Figure("Redis", "SET of a part", len(part) / best / 1e9, "GB/s", at_least=0.8)
    steps = [[value_of(STEP * TOKEN, kind=Kind.PAGES), value_of(STATE)] for _ in range(20)]
    seconds = sorted(took for step in steps for took in timed(partial(put, store, *step), 1))
    yield Figure("Redis", "publish a step, 95 %", 1e3 * seconds[18], "ms", at_most=50)
    server.client.flushall()
    before = server.info("memory")["used_memory"]
    held = history(LONG)
    put(store, *held)
    used = server.info("memory")["used_memory"] - before
    payload = sum(value.nbytes for value in held)
    yield Figure("Redis", "memory over payload", 100 * (used / payload - 1), "%", at_most=3)


def reading(server: RedisServer, store: RedisStore) -> Iterator[Figure]:
    """Values out of Redis, one reader and eight."""
    values = history(LONG)
    put(store, *values)
    into = [buffer_for(value.nbytes) for value in values]
    best = min(load(store, values, into) for _ in range(REPEATS))
    nbytes = sum(value.nbytes for value in values)
    yield Figure("Redis", f"restore {LONG:,} tokens", best, "s", at_most=0.6)
    yield Figure("Redis", "restore, bytes", nbytes / best / 1e9, "GB/s")
    peak, done = 0, threading.Event()
    before = server.info("memory")["used_memory"]

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, server.info("memory")["used_memory"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(8) as threads:
        wants = [Want(value.key, buffer_for(value.nbytes)) for value in values]
        found = list(threads.map(store.load, [wants] * 8))
    done.set()
    watcher.join()
    assert sum(held is not None for some in found for held in some) > 0
    yield Figure("Redis", "memory for 8 restores", (peak - before) / 1e6, "MB", at_most=128)


def stopped(server: RedisServer, store: RedisStore) -> Iterator[Figure]:
    """A server that answers nothing for some seconds, under load."""
    kept = value_of(1 << 20)
    put(store, kept)
    values = [value_of(STATE, session="s") for _ in range(8)]
    into = buffer_for(kept.nbytes)
    server.pause()
    steps: list[float] = []
    offers: list[float] = []
    until = time.monotonic() + STOPPED_SECONDS
    while time.monotonic() < until:
        steps += timed(lambda: store.load([Want(kept.key, into)]), 1)
        offers += timed(partial(store.offer, [values[len(steps) % 8]]), 1)
        time.sleep(0.01)
    failed = store.stats().counts["failed:unreachable"]
    server.resume()
    began = time.monotonic()
    while store.load([Want(kept.key, into)]) == [None]:
        time.sleep(0.05)
    seconds = time.monotonic() - began
    offers.sort()
    yield Figure("stopped", "longest load", 1e3 * max(steps), "ms", at_most=300)
    yield Figure("stopped", "calls that waited", sum(s > 0.1 for s in steps), "calls", at_most=6)
    yield Figure("stopped", "offer, 99 %", 1e3 * offers[len(offers) * 99 // 100], "ms", at_most=1)
    yield Figure("stopped", "failures counted", failed, "calls")
    yield Figure("stopped", "hits again after", seconds, "s", at_most=15)


def memory() -> Iterator[Figure]:
    """The host tier."""
    store = HostStore(1 << 30)
    values = history(LONG)
    offers = timed(lambda: store.offer([value_of(100)]), 200)
    yield Figure("host", "offer, 99 %", 1e3 * sorted(offers)[197], "ms", at_most=1)
    store.offer(values)
    into = [buffer_for(value.nbytes) for value in values]
    best = min(load(store, values, into) for _ in range(REPEATS))
    nbytes = sum(value.nbytes for value in values)
    yield Figure("host", f"restore {LONG:,} tokens", best, "s", at_most=0.15)
    yield Figure("host", "restore, bytes", nbytes / best / 1e9, "GB/s")
    small = HostStore(64 * 1_100)
    seconds = timed(lambda: small.offer([value_of(1_000)]), 2_000)
    yield Figure("host", "offer that evicts", 1e3 * statistics.median(seconds), "ms", at_most=0.5)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    json = parser.parse_args().json
    logging.disable(logging.WARNING)
    figures = [*hashing(), *memory()]
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer(Path(folder)) as server,
        RedisLink(server.url) as link,
        RedisStore(link, queue_bytes=1 << 30) as store,
    ):
        figures += [*writing(server, link, store), *reading(server, store)]
        figures += stopped(server, store)
    show(figures, REPEATS, "checkpoint store on this machine")
    if json is not None:
        write(json, figures, REPEATS)


if __name__ == "__main__":
    main()
