"""What enters a store, what leaves it first, and whether to load from it at all."""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flide_cache.base import Value

STRIDE = 256
"""Tokens between the places at which lower tiers take checkpoints."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a tier takes.

    Attributes:
        stride: values must end at a multiple of it: fewer places, and the same for all replicas.
        least_position: shorter histories are not worth the way.
    """

    stride: int = STRIDE
    least_position: int = 0

    def admits(self, value: Value) -> bool:
        """Whether the tier takes a value."""
        return value.position % self.stride == 0 and value.position >= self.least_position


class EvictionOrder:
    """Candidates for eviction: superseded ones first, then by what they are worth and by age.

    GreedyDual: a candidate's rank is its worth plus a clock, and the clock moves to the rank of
    what was evicted last; so what is never used again goes in the end, whatever it is worth.
    """

    def __init__(self) -> None:
        self._clock = 0.0
        self._count = 0
        self._heaps: dict[str, list[tuple[bool, float, int, bytes]]] = {}
        self._current: dict[bytes, tuple[str, int]] = {}
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._current)

    def put(self, key: bytes, tenant: str, worth: float, *, superseded: bool = False) -> None:
        """Make a value a candidate, or rank it anew because it was used.

        Args:
            worth: seconds of computing that a byte of it saves, times its uses.
        """
        self.remove(key)
        self._count += 1
        self._current[key] = (tenant, self._count)
        self._sizes[tenant] += 1
        heap = self._heaps.setdefault(tenant, [])
        heapq.heappush(heap, (not superseded, self._clock + worth, self._count, key))
        if len(heap) > 2 * self._sizes[tenant] + 64:
            heap[:] = [item for item in heap if self._is_current(item)]
            heapq.heapify(heap)

    def remove(self, key: bytes) -> None:
        """A value is no candidate any more."""
        found = self._current.pop(key, None)
        if found is not None:
            self._sizes[found[0]] -= 1

    def pop(self, tenant: str | None = None) -> bytes | None:
        """Take the next to go, of one tenant or of all; None when there is no candidate."""
        tenants = list(self._heaps) if tenant is None else [tenant]
        heads = [head for name in tenants if (head := self._head(name)) is not None]
        if not heads:
            return None
        lasting, rank, _, key = min(heads)
        if lasting:
            self._clock = max(self._clock, rank)
        self.remove(key)
        return key

    def _head(self, tenant: str) -> tuple[bool, float, int, bytes] | None:
        heap = self._heaps.get(tenant, [])
        while heap and not self._is_current(heap[0]):
            heapq.heappop(heap)
        if not heap:
            self._heaps.pop(tenant, None)
            self._sizes.pop(tenant, None)
            return None
        return heap[0]

    def _is_current(self, item: tuple[bool, float, int, bytes]) -> bool:
        return self._current.get(item[3], ("", 0))[1] == item[2]


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a tier is thought to be, until it was measured.

    Attributes:
        latency: seconds until the first byte.
        bytes_per_second: from then on.
    """

    latency: float
    bytes_per_second: float


PRIORS = {"host": Speed(5e-5, 8e9), "redis": Speed(1e-3, 1e9)}
"""Of memory, and of a server in the same rack over TCP."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether to restore, and why.

    Attributes:
        restore: rather than to compute.
        load_seconds, recompute_seconds: what either is expected to take.
        reason: in words.
    """

    restore: bool
    load_seconds: float
    recompute_seconds: float
    reason: str


class _Rate:
    """An amount a second, over what was seen lately; a prior counts as one observation."""

    _KEPT = 0.9
    _PRIOR_SECONDS = 0.05

    def __init__(self, prior: float) -> None:
        self._amount = prior * self._PRIOR_SECONDS
        self._seconds = self._PRIOR_SECONDS

    def add(self, amount: float, seconds: float) -> None:
        if amount <= 0:
            return
        self._amount = self._KEPT * self._amount + amount
        self._seconds = self._KEPT * self._seconds + seconds

    def seconds(self, amount: float) -> float:
        return amount * self._seconds / self._amount


class RestoreModel:
    """Load a checkpoint, or compute its tokens again? By rates that are measured while running.

    Args:
        tokens_per_second: that are thought to be computed, until that was measured.
        tiers: how fast each is thought to be, by name.
        margin: loading must be faster by this factor: a late load costs both.
        probe_every: of so many loads that seem too slow one is done all the same, or a tier that
            was slow once would never be seen to be fast again.
    """

    def __init__(
        self,
        tokens_per_second: float,
        tiers: Mapping[str, Speed] = PRIORS,
        *,
        margin: float = 1.2,
        probe_every: int = 64,
    ) -> None:
        self.margin = margin
        self.probe_every = probe_every
        self.tiers = tuple(tiers)
        self._lock = threading.Lock()
        self._computing = _Rate(tokens_per_second)
        self._latency = {name: speed.latency for name, speed in tiers.items()}
        self._loading = {name: _Rate(speed.bytes_per_second) for name, speed in tiers.items()}
        self._refused: Counter[str] = Counter()

    def computed(self, tokens: int, seconds: float) -> None:
        """Tokens were computed in so many seconds."""
        with self._lock:
            self._computing.add(tokens, seconds)

    def loaded(self, tier: str, nbytes: int, seconds: float) -> None:
        """Bytes were loaded from a tier in so many seconds."""
        moving = max(seconds - self._latency[tier], seconds / 2)
        with self._lock:
            self._loading[tier].add(nbytes, moving)

    def predicted_recompute_seconds(self, tokens: int) -> float:
        """What computing so many tokens will take."""
        with self._lock:
            return self._computing.seconds(tokens)

    def predicted_load_seconds(self, nbytes: int, tier: str) -> float:
        """What loading so many bytes from a tier will take."""
        with self._lock:
            return self._latency[tier] + self._loading[tier].seconds(nbytes)

    def choose(self, tokens: int, nbytes: Mapping[str, int]) -> Choice:
        """Whether to load bytes, from one tier or several, or to compute the tokens they stand for.

        Args:
            tokens: that would have to be computed.
            nbytes: that would have to be loaded, by tier.
        """
        by_tier = {
            tier: self.predicted_load_seconds(count, tier)
            for tier, count in nbytes.items()
            if count
        }
        load, compute = sum(by_tier.values()), self.predicted_recompute_seconds(tokens)
        restore = load * self.margin < compute
        place = " and ".join(by_tier)
        reason = (
            f"loading {sum(nbytes.values()) / 1e6:,.1f} MB from {place} takes about {load:.3g} s, "
            f"computing {tokens:,} tokens about {compute:.3g} s"
        )
        if not restore and by_tier and self._is_probe(max(by_tier, key=by_tier.__getitem__)):
            return Choice(True, load, compute, f"to see if that is still so: {reason}")
        return Choice(restore, load, compute, reason)

    def _is_probe(self, tier: str) -> bool:
        with self._lock:
            self._refused[tier] += 1
            return self._refused[tier] % self.probe_every == 0
