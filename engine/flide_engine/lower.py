"""The tiers below the device: checkpoints go down behind a pass, and come up before one.

What goes down lies at multiples of `STRIDE`: pages by the stretch, and states. It comes up only if
that is predicted to take less time than computing it again, and everything that is missing,
damaged or late is computed.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from flide_cache import Kind, Namespace, Value, Want
from flide_cache.policy import STRIDE as STRIDE
from flide_engine.audit import Audit
from flide_engine.core import GRID, Request
from flide_engine.marks import MARGIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flide_cache import CheckpointStore, RestoreModel
    from flide_cache.base import Held
    from flide_engine.blocks import Lease
    from flide_engine.parts import Parts
    from flide_engine.pool import Pool

BACKLOG_BYTES = 256 * 1024**2
"""Copied from the device and not yet offered; beyond it checkpoints stay on the device alone."""

FLOOR_SECONDS = 0.05
"""Time that a load has at least, however little it saves."""


class Tiers(NamedTuple):
    """Where checkpoints go besides the device.

    Attributes:
        store: keeps them.
        model: says whether to load or to compute.
        secret: shared by all replicas that share the store; at least 16 bytes.
        audit: the share of restored requests that are computed again, at low priority, to compare.
    """

    store: CheckpointStore
    model: RestoreModel
    secret: bytes
    audit: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """A checkpoint that came up, on the host.

    Attributes:
        position: tokens from the start of the history to its end.
        start: from where on its pages came up; a multiple of `STRIDE`.
        pages: `[bytes]` uint8, of the stretches from there on.
        state: `[bytes]` uint8; None for a model without recurrent layers.
        tier: the slowest that it came from.
        choice: why it came up, in words.
    """

    position: int
    start: int
    pages: list[torch.Tensor]
    state: torch.Tensor | None
    tier: str
    choice: str


class _Going(NamedTuple):
    """What is said of a value that goes down; see `Value`."""

    key: bytes
    kind: Kind
    position: int
    seconds: float
    tenant: str
    parent: bytes | None

    def value(self, payload: torch.Tensor) -> Value:
        """The value, of bytes on the host."""
        return Value(
            self.key,
            payload.numpy().data,
            self.kind,
            self.position,
            seconds=self.seconds,
            tenant=self.tenant,
            parent=self.parent,
        )


class Lower:
    """The engine's side of a store. `find` is for any thread, the rest for the device's own.

    Args:
        tiers: the store and what decides about it.
        parts: pages and states as bytes.
        hybrid: whether checkpoints need states.
        fingerprint: all that must be equal for bytes to be interchangeable.
    """

    def __init__(
        self, tiers: Tiers, parts: Parts, *, hybrid: bool, fingerprint: Mapping[str, str]
    ) -> None:
        self.store, self.model = tiers.store, tiers.model
        self._secret = tiers.secret
        self.audit = Audit(tiers.audit)
        self._parts = parts
        self._hybrid = hybrid
        self._fingerprint = dict(fingerprint)
        self._namespaces: dict[str, Namespace] = {}
        self._offering = ThreadPoolExecutor(1, thread_name_prefix="flide-offer")
        self._backlog = 0
        self._lock = threading.Lock()

    def passed(self, leases: Sequence[Lease], seconds: float) -> None:
        """Take note of how long a round took; small ones say more of their overhead."""
        rows = sum(
            len(lease.request.trunk)
            - lease.start
            + sum(len(branch.token_ids) for branch in lease.request.branches)
            for lease in leases
        )
        if rows >= STRIDE:
            self.model.computed(rows, seconds)

    def keep(self, lease: Lease) -> None:
        """Copy a lease's new checkpoints, and offer them to the store from another thread."""
        space = self._namespace(lease.request.tenant)
        keys = {
            end: space.key(Kind.PAGES, lease.digests[end // GRID - 1])
            for end in range(lease.start // STRIDE * STRIDE, lease.last_mark + 1, STRIDE)
            if end
        }
        for end, key in keys.items():
            if end <= lease.start:
                continue
            pages = lease.pages[(end - STRIDE) // GRID : end // GRID]
            seconds = 0.0 if self._hybrid else self.model.predicted_recompute_seconds(STRIDE)
            going = _Going(key, Kind.PAGES, end, seconds, space.tenant, keys.get(end - STRIDE))
            self._offer(going, self._parts.pages(pages))
        for place, state in sorted(lease.saves.items()):
            if place % STRIDE == 0:
                key = space.key(Kind.STATE, lease.digests[place // GRID - 1])
                seconds = self.model.predicted_recompute_seconds(place)
                going = _Going(key, Kind.STATE, place, seconds, space.tenant, keys[place])
                self._offer(going, self._parts.state(state))

    def bring_up(self, pool: Pool, request: Request, restored: Restored) -> bool:
        """Put a checkpoint that came up on the device; False if there is no room for it."""
        position = restored.position
        trunk, digests = request.trunk[:position], request.digests[: position // GRID]
        whole = Request(trunk, (), request.tenant, position + MARGIN, digests)
        lease = pool.acquire(whole, marks=[position])
        if lease is None:
            return False
        if lease.start < restored.start or (self._hybrid and position not in lease.saves):
            # What lay before it on the device is gone, or there is no room for its state.
            pool.release(lease)
            return False
        try:
            for place, pages in enumerate(restored.pages):
                first = restored.start + place * STRIDE
                own = lease.pages[max(first, lease.start) // GRID : (first + STRIDE) // GRID]
                self._parts.write_pages(own, pages)
            if restored.state is not None:
                self._parts.write_state(lease.saves[position], restored.state)
        except BaseException:
            pool.release(lease)
            raise
        pool.commit(lease)
        return True

    def find(self, request: Request, held: int) -> tuple[Restored | None, str]:
        """The deepest checkpoint of a request below the device, if it is worth bringing up.

        Args:
            request: its digests are those of all its full blocks.
            held: what the device is thought to hold of it.

        Returns:
            What came up, if anything; and what was chosen and why, "" if there was no choice.
        """
        forks = [branch.fork for branch in request.branches if branch.fork is not None]
        limit = min([len(request.trunk) - 1, *forks]) // STRIDE * STRIDE
        start = held // STRIDE * STRIDE
        ends = list(range(start + STRIDE, limit + 1, STRIDE))
        if not ends or limit <= held:
            return None, ""
        space = self._namespace(request.tenant)
        digests = [request.digests[end // GRID - 1] for end in ends]
        pages = [space.key(Kind.PAGES, digest) for digest in digests]
        states = [space.key(Kind.STATE, digest) for digest in digests] if self._hybrid else []
        found = self.store.lookup(pages + states, time.monotonic() + FLOOR_SECONDS * 4)
        count = self._deepest(found[: len(ends)], found[len(ends) :])
        if not count:
            return None, ""
        wanted = found[:count] + ([found[len(ends) + count - 1]] if self._hybrid else [])
        keys = pages[:count] + ([states[count - 1]] if self._hybrid else [])
        by_tier: dict[str, int] = {}
        for one in wanted:
            assert one is not None
            by_tier[one.tier] = by_tier.get(one.tier, 0) + one.nbytes
        choice = self.model.choose(ends[count - 1] - held, by_tier)
        if not choice.restore:
            return None, f"computed: {choice.reason}"
        deadline = time.monotonic() + max(choice.recompute_seconds, FLOOR_SECONDS)
        loaded = self._load(keys, request.tenant, deadline)
        if loaded is None:
            return None, f"computed: the load failed or was late; {choice.reason}"
        state = loaded.pop() if self._hybrid else None
        tier = max(by_tier, key=by_tier.__getitem__)
        words = f"restored: {choice.reason}"
        return Restored(ends[count - 1], start, loaded, state, tier, words), words

    def close(self) -> None:
        """Offer what was copied, and write what the store has queued."""
        self._offering.shutdown(wait=True)
        self.store.flush(time.monotonic() + 5.0)

    def _deepest(self, pages: list[Held | None], states: list[Held | None]) -> int:
        """How many stretches lead to the deepest checkpoint that is whole."""
        whole = next((i for i, held in enumerate(pages) if held is None), len(pages))
        if not self._hybrid:
            return whole
        return next((i for i in range(whole, 0, -1) if states[i - 1] is not None), 0)

    def _load(self, keys: list[bytes], tenant: str, deadline: float) -> list[torch.Tensor] | None:
        stretch = self._parts.page_bytes * (STRIDE // GRID)
        sizes = [stretch] * len(keys)
        if self._hybrid:
            sizes[-1] = self._parts.state_bytes
        buffers = [torch.empty(size, dtype=torch.uint8) for size in sizes]
        wants = []
        for place, (key, buffer) in enumerate(zip(keys, buffers, strict=True)):
            parent = keys[place - 1] if place else None
            wants.append(Want(key, buffer.numpy().data, tenant, parent))
        loaded = self.store.load(wants, deadline)
        return None if any(held is None for held in loaded) else buffers

    def _offer(self, going: _Going, taken: torch.Tensor) -> None:
        """Hand a copy over; one that the thread behind has no room for is left out."""
        with self._lock:
            if self._backlog + taken.nbytes > BACKLOG_BYTES:
                return
            self._backlog += taken.nbytes
        done = torch.cuda.Event() if taken.is_cuda else None  # type: ignore[no-untyped-call]
        if done is not None:
            done.record()

        def offer() -> None:
            try:
                if done is not None:
                    done.synchronize()
                self.store.offer([going.value(taken.cpu())])
            finally:
                with self._lock:
                    self._backlog -= taken.nbytes

        self._offering.submit(offer)

    def _namespace(self, tenant: str) -> Namespace:
        space = self._namespaces.get(tenant)
        if space is None:
            space = self._namespaces[tenant] = Namespace(self._fingerprint, tenant, self._secret)
        return space
