"""Checkpoints below a GPU, with Redis on the same host: `python -m benchmarks.store_gpu`.

One decoder of the 27B model's layer shapes, cut to 8 layers, and one of the 0.8B model, with random
weights; no file and no network is needed. Each history is computed, published, and resumed
by serving that has an empty device and an empty host tier, as after a restart. `--device cpu
--sizes tiny --history 2048` tries it without a GPU; bounds are for one H200.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.gpu import RandomWeights
from benchmarks.report import Figure, show, write
from benchmarks.shapes import COMMON, SIZES
from flide_cache import HostStore, RestoreModel, Tier, TieredStore
from flide_cache.link import RedisLink
from flide_cache.redis import RedisStore
from flide_engine.backend import DTYPES
from flide_engine.blocks import block_digests
from flide_engine.core import GRID, Branch, Request
from flide_engine.lower import STRIDE, Tiers
from flide_engine.models import Decoder, load_model
from flide_engine.serving import Serving
from flide_engine.verify import BOUNDS
from tests.cache.server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flide_cache import CheckpointStore
    from flide_engine.core import Outcome
    from flide_engine.lower import Lower

# Layers as those of 27B, an eighth of them; the readout costs nothing that counts here.
SHAPES = SIZES | {
    "27B-8": COMMON | {
        "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 8,
        "num_attention_heads": 24, "num_key_value_heads": 4, "linear_num_value_heads": 48,
    },
}  # fmt: skip
SECRET = b"of this benchmark alone"
POOL_BYTES = 4 << 30
HOST_BYTES = 4 << 30
QUEUE_BYTES = 1 << 30
TAIL = 40
"""Tokens of a history behind its last checkpoint."""
STEP = 300
STEPS = 48
REPEATS = 5
TOKENS_PER_SECOND = 200_000.0
"""That a GPU is thought to compute, until it was measured."""

ALWAYS, NEVER = 0.0, float("inf")
"""Margins by which loading must be faster."""


class Bench:
    """What is measured on one decoder.

    Args:
        size: of `SHAPES`.
        device: "cuda" or "cpu".
        dtype: of products.
        history: tokens, a multiple of `STRIDE`.
        steps: whose offers are timed.
        url: of Redis.
    """

    def __init__(
        self, size: str, device: str, dtype: str, history: int, steps: int, url: str
    ) -> None:
        self.size, self.history, self.steps, self.url = size, history, steps, url
        self._on_gpu = device == "cuda"
        self._random = np.random.default_rng()
        began = time.perf_counter()
        weights: Any = RandomWeights(torch.device(device), DTYPES[dtype])
        with torch.inference_mode():
            self.model: Decoder = load_model(SHAPES[size], weights)
        say(f"{size}: weights after {time.perf_counter() - began:.1f} s")

    def request(self, length: int, opening: np.ndarray[Any, Any] | None = None) -> Request:
        """A new history, or one that goes on, and four questions."""
        opening = np.zeros(0, np.int64) if opening is None else opening
        more = self._random.integers(0, 9_000, length - len(opening))
        questions = [Branch(self._random.integers(0, 9_000, 60), np.arange(4)) for _ in range(4)]
        return Request(np.concatenate([opening, more]), tuple(questions))

    @contextmanager
    def serving(self, store: CheckpointStore, choosing: RestoreModel) -> Iterator[Serving]:
        """Serving with an empty device over a store."""
        began = time.perf_counter()
        serving = Serving(
            self.model,
            pool_bytes=POOL_BYTES,
            max_round_tokens=8_192,
            tiers=Tiers(store, choosing, SECRET),
            fingerprint={"weights": f"random, of {self.size}"},
            progress=lambda done, total: None,
        )
        say(f"{self.size}: ready after {time.perf_counter() - began:.1f} s")
        try:
            yield serving
        finally:
            serving.close(drain=True)

    @contextmanager
    def redis(self, choosing: RestoreModel) -> Iterator[TieredStore]:
        """Redis alone below the device, through connections of its own."""
        with (
            RedisLink(self.url) as link,
            TieredStore([Tier(RedisStore(link, queue_bytes=QUEUE_BYTES))], choosing) as store,
        ):
            yield store

    def restart(self) -> Iterator[Figure]:
        """A history that one process leaves in Redis, and another resumes."""
        length = self.history + TAIL
        request, others = self.request(length), [self.request(length) for _ in range(REPEATS + 1)]
        choosing = RestoreModel(TOKENS_PER_SECOND)
        with self.redis(choosing) as store, self.serving(store, choosing) as serving:
            (expected,) = serving.run([request])
            settle(serving)
        choosing = RestoreModel(TOKENS_PER_SECOND)
        with self.redis(choosing) as store, self.serving(store, choosing) as serving:
            # Graphs of these sizes are captured when they are first needed.
            serving.run([others[-1]])
            settle(serving)
            margin, choosing.margin = choosing.margin, ALWAYS
            _, restored = self.timed(serving, request)
            self.check(expected, restored, resumed=True)
            loads = [self.timed(serving, request)[0] for _ in range(REPEATS)]
            choosing.margin = NEVER
            computes = []
            for other in others[:-1]:
                computes.append(self.timed(serving, other)[0])
                settle(serving)
            choosing.margin = margin
            seconds, chosen = self.timed(serving, request)
            self.check(expected, chosen, resumed=chosen.reuse.source == "redis")
            say(f"{self.size}: {chosen.reuse.choice}")
            yield from self.compared(min(loads), min(computes), seconds, chosen)

    def compared(
        self, load: float, compute: float, own: float, chosen: Outcome
    ) -> Iterator[Figure]:
        """Loading, computing, and what the cost model chose of the two."""
        case = f"{self.size}: {self.history:,} tokens after a restart"
        layout, dtype = self.model.layout, self.model.dtype
        nbytes = self.history // GRID * layout.page_bytes(dtype) + layout.state_bytes(dtype)
        yield Figure(case, "loaded", nbytes / 1e6, "MB")
        yield Figure(case, "resumed from Redis", 1e3 * load, "ms")
        yield Figure(case, "computed", 1e3 * compute, "ms")
        least = 1.0 if self.size.startswith("27B") else None
        yield Figure(case, "resumed is faster by", compute / load, "x", at_least=least)
        words = "restore" if chosen.reuse.source == "redis" else "compute"
        yield Figure(case, f"chosen: to {words}", 1e3 * own, "ms")
        best = own / min(load, compute)
        yield Figure(case, "chosen over the faster", best, "x", at_most=1.25)

    def timed(self, serving: Serving, request: Request) -> tuple[float, Outcome]:
        """Seconds from tokens to answers, with an empty device."""
        serving.forget()
        self.wait()
        began = time.perf_counter()
        (outcome,) = serving.run([request])
        return time.perf_counter() - began, outcome

    def check(self, expected: Outcome, found: Outcome, *, resumed: bool) -> None:
        """Nothing that is measured may be wrong."""
        if resumed:
            assert found.reuse.source == "redis", found.reuse
            assert found.reuse.reused_tokens >= 0.97 * self.history, found.reuse
        for one, other in zip(expected.probabilities, found.probabilities, strict=True):
            assert abs(one - other).max() <= BOUNDS[self.model.dtype]

    def both(self) -> Iterator[Figure]:
        """With host memory before Redis: what comes up, and what going down costs."""
        choosing = RestoreModel(TOKENS_PER_SECOND, margin=ALWAYS)
        with (
            RedisLink(self.url) as link,
            TieredStore(
                [Tier(HostStore(HOST_BYTES)), Tier(RedisStore(link, queue_bytes=QUEUE_BYTES))],
                choosing,
            ) as store,
            self.serving(store, choosing) as serving,
        ):
            yield from self.host(serving)
            yield from self.offers(serving)

    def host(self, serving: Serving) -> Iterator[Figure]:
        """From host memory to the device: loaded, checked, and in its pages."""
        case = f"{self.size}: host memory"
        request = self.request(self.history + TAIL)
        digests = block_digests(request.tenant, request.trunk, len(request.trunk) // GRID)
        request = Request(request.trunk, request.branches, digests=digests)
        serving.run([request])
        settle(serving)
        took = [self.brought_up(serving, request) for _ in range(REPEATS)]
        find, bring_up, nbytes = min(took, key=lambda each: each[0] + each[1])
        target = 20 if self._on_gpu else None
        yield Figure(case, "load and check", nbytes / find / 1e9, "GB/s")
        yield Figure(case, "into the pool", nbytes / bring_up / 1e9, "GB/s")
        yield Figure(case, "restore", nbytes / (find + bring_up) / 1e9, "GB/s", at_least=target)

    def brought_up(self, serving: Serving, request: Request) -> tuple[float, float, int]:
        """Seconds to load a checkpoint, and to put it on the device; and its bytes."""
        serving.forget()
        lower = below(serving)
        self.wait()
        began = time.perf_counter()
        restored, choice = lower.find(request, 0)
        found = time.perf_counter()
        assert restored is not None, choice
        assert restored.tier == "host"

        def bring_up() -> bool:
            done = lower.bring_up(serving.pool, request, restored)
            self.wait()
            return done

        assert serving.scheduler.call(bring_up)
        ended = time.perf_counter()
        assert serving.pool.held(request) == self.history
        state = 0 if restored.state is None else restored.state.nbytes
        nbytes = sum(pages.nbytes for pages in restored.pages) + state
        return found - began, ended - found, nbytes

    def offers(self, serving: Serving) -> Iterator[Figure]:
        """What leaving checkpoints to both tiers costs the engine's thread."""
        case = f"{self.size}: the engine's thread"
        kept = watch(below(serving))
        request = self.request(self.history // 2 + TAIL)
        serving.run([request])
        settle(serving)
        first, kept[:] = max(kept), []
        for _ in range(self.steps):
            request = self.request(len(request.trunk) + STEP, request.trunk)
            serving.run([request])
        settle(serving)
        steps = sorted(kept)
        limit = 1.0 if self._on_gpu else None
        for name, place in (("median", len(steps) // 2), ("99 %", len(steps) * 99 // 100)):
            took = 1e3 * steps[place]
            yield Figure(case, f"offer of a step of {STEP}, {name}", took, "ms", at_most=limit)
        yield Figure(case, f"offer of {self.history // 2:,} tokens at once", 1e3 * first, "ms")

    def wait(self) -> None:
        """Until the device has nothing to do."""
        if self._on_gpu:
            torch.cuda.synchronize()


def below(serving: Serving) -> Lower:
    """The tiers' side of an engine."""
    assert serving._lower is not None
    return serving._lower


def watch(lower: Lower) -> list[float]:
    """Seconds that each `keep` takes from now on."""
    seconds: list[float] = []
    keep: Callable[[Any], None] = lower.keep

    def timed(lease: Any) -> None:
        began = time.perf_counter()
        keep(lease)
        seconds.append(time.perf_counter() - began)

    lower.keep = timed  # type: ignore[method-assign]
    return seconds


def settle(serving: Serving) -> None:
    """Wait until all checkpoints have gone down."""
    lower = below(serving)
    lower._offering.submit(lambda: None).result()
    assert lower.store.flush(time.monotonic() + 60)


def say(words: str) -> None:
    """What happens, at once."""
    print(words, flush=True)


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dtype", choices=DTYPES, help="by default bfloat16, float32 on a CPU")
    parser.add_argument("--sizes", nargs="+", choices=SHAPES, default=["27B-8", "0.8B"])
    parser.add_argument("--history", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=STEPS, help="whose offers are timed")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    args = parser.parse_args()
    if args.history % STRIDE:
        parser.error(f"--history {args.history} is no multiple of {STRIDE}: round it.")
    dtype = args.dtype or ("bfloat16" if args.device == "cuda" else "float32")
    logging.disable(logging.INFO)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
        say(f"Redis {server.info('server')['redis_version']}, dtype {dtype}")
        for size in args.sizes:
            bench = Bench(size, args.device, dtype, args.history, args.steps, server.url)
            for part in (bench.restart, bench.both):
                figures += part()
                server.client.flushall()
                if args.json is not None:
                    write(args.json, figures, REPEATS)
    show(figures, REPEATS, f"checkpoints below {args.device}, Redis on the same host")


if __name__ == "__main__":
    main()
