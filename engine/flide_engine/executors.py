"""Who runs a round: plainly on a CPU, or as a captured CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch

from flide_engine.arrays import Capacity, DeviceArrays, StagedArrays
from flide_engine.pack import Trunk, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_engine.models import Decoder
    from flide_engine.round import Round
    from flide_engine.storage import Storage

LogProbabilities = npt.NDArray[np.float64]


class Executor(Protocol):
    """Runs rounds.

    Attributes:
        depth: how many rounds may be started before the first of them is waited for.
    """

    depth: int

    def start(self, trunks: Sequence[Trunk]) -> Callable[[], list[LogProbabilities]]:
        """Start a round.

        Returns:
            What waits for its end, and gives the log-probabilities of every branch's labels, in
            order.
        """
        ...


class PlainExecutor:
    """Packs a round as large as it is, and runs the model on it."""

    depth = 1

    def __init__(self, model: Decoder, storage: Storage) -> None:
        self.model = model
        self.storage = storage

    def start(self, trunks: Sequence[Trunk]) -> Callable[[], list[LogProbabilities]]:
        """Run a round; it has ended when this returns."""
        rnd = pack(trunks, self.storage.layout, self.storage.num_states)
        read = _by_branch(self.model(rnd, self.storage), rnd)
        return lambda: read


class GraphExecutor:
    """Replays the smallest captured graph that holds a round; runs larger ones without.

    Every graph is the same body with other capacities; what a round is, is data. Graphs are
    captured when they are first needed and share their working memory.

    Args:
        model, storage: on a CUDA device.
        tile_rows: query rows of a tile of fork attention.
        capacities: of the graphs.
    """

    depth = 2

    def __init__(
        self, model: Decoder, storage: Storage, tile_rows: int, capacities: Sequence[Capacity]
    ) -> None:
        self.model = model
        self.storage = storage
        self.tile_rows = tile_rows
        self.capacities = sorted(capacities)
        self._graphs: dict[Capacity, _Graph] = {}
        self._memory = torch.cuda.graph_pool_handle()

    def warm_up(self, progress: Callable[[int, int], None]) -> None:
        """Compile every kernel, and capture the graphs of small rounds, before the first one.

        Args:
            progress: called as (done, total), in kernels and then in graphs.
        """
        from flide_engine.kernels.ahead import compile_ahead

        layout, device = self.storage.layout, self.storage.device
        small = [c for c in self.capacities if c.tokens <= SMALL_TOKENS and c.pages <= SMALL_PAGES]
        if small:
            arrays = StagedArrays(small[0], layout.conv_width, self.tile_rows, device)
            idle = _idle_round(self.storage, arrays)
            compile_ahead(lambda: self.model(idle, self.storage), progress)
        for done, capacity in enumerate(small, 1):
            self._graphs[capacity] = _Graph(self, capacity)
            progress(done, len(small))

    def start(self, trunks: Sequence[Trunk]) -> Callable[[], list[LogProbabilities]]:
        """Launch a round."""
        need = capacity_for(trunks)
        held = next((c for c in self.capacities if c.holds(need)), None)
        if held is None:
            arrays = DeviceArrays(self.storage.device, self.tile_rows)
            rnd = pack(trunks, self.storage.layout, self.storage.num_states, arrays)
            return _later(self.model(rnd, self.storage), rnd)
        if held not in self._graphs:
            self._graphs[held] = _Graph(self, held)
        return self._graphs[held].start(trunks)


class _Graph:
    """One captured pass, its staging buffer and its result.

    The buffer on the host may be filled again once it was copied, which the device does before it
    computes; all else happens in the order of the stream.
    """

    def __init__(self, executor: GraphExecutor, capacity: Capacity) -> None:
        self.model, self.storage = executor.model, executor.storage
        layout, device = self.storage.layout, self.storage.device
        self.arrays = StagedArrays(capacity, layout.conv_width, executor.tile_rows, device)
        rnd = _idle_round(self.storage, self.arrays)
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.model(rnd, self.storage)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=executor._memory):
            self.out = self.model(rnd, self.storage)
        self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def start(self, trunks: Sequence[Trunk]) -> Callable[[], list[LogProbabilities]]:
        self.copied.synchronize()
        rnd = pack(trunks, self.storage.layout, self.storage.num_states, self.arrays)
        self.arrays.copy()
        self.copied.record()
        self.graph.replay()
        return _later(self.out, rnd)


def _idle_round(storage: Storage, arrays: StagedArrays) -> Round:
    """A round of one token that writes nothing: its row has no place in the pool."""
    nothing = Trunk(np.zeros(1, np.int64), [], [0])
    rnd = pack([nothing], storage.layout, storage.num_states, arrays)
    arrays.put("slot_mapping", np.zeros(0, np.int64))
    arrays.copy()
    return rnd


def capacity_for(trunks: Sequence[Trunk]) -> Capacity:
    """What a round of these needs."""
    branches = [branch for trunk in trunks for branch in trunk.branches]
    return Capacity(
        tokens=sum(trunk.tail for trunk in trunks) + sum(len(b.token_ids) for b in branches),
        pages=max(len(trunk.pages) for trunk in trunks),
        slots=len(trunks),
        branches=len(branches),
        labels=sum(len(branch.label_ids) for branch in branches),
        saves=sum(len(trunk.saves) for trunk in trunks),
    )


TOKENS = (
    64, 128, 192, 256, 336, 384, 432, 512, 560, 640, 768, 896, 1024, 1152, 1280, 1536, 1792, 2048,
    2560, 3072, 3584, 4096, 4608, 5120, 5632, 6144, 6656, 7168, 7680, 8192,
)  # fmt: skip
"""Rows of captured streams: where the library's products took long for their size on an H200, as at
448, there is another nearby."""

SMALL_TOKENS, SMALL_PAGES = 512, 64
"""Of the graphs that are captured before the first round: a request that waits for its answer."""


def ladder(max_tokens: int, max_pages: int) -> list[Capacity]:
    """Capacities to capture: steps of four in pages, of much less in tokens.

    Every number of tokens comes for one request with some questions, and for many.
    """
    pages, steps = max_pages, []
    while pages > 16:
        steps.append(pages)
        pages //= 4
    return [
        Capacity(count, page, slots, branches, 16 * branches + 256, 6 * slots)
        for count in TOKENS
        if count <= max_tokens
        for page in [max(16, count // 64), *steps]
        if page >= count // 64
        for slots, branches in sorted(
            {(4, min(64, max(8, count // 32))), (max(4, count // 128), max(8, count // 32))}
        )
    ]


def _later(logprobs: torch.Tensor, rnd: Round) -> Callable[[], list[LogProbabilities]]:
    """Send a launched round's result to the host; returns what waits for it."""
    host = torch.empty(logprobs.shape, dtype=logprobs.dtype, pin_memory=True)
    host.copy_(logprobs, non_blocking=True)
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record()

    def read() -> list[LogProbabilities]:
        done.synchronize()
        return _by_branch(host, rnd)

    return read


def _by_branch(logprobs: torch.Tensor, rnd: Round) -> list[LogProbabilities]:
    counts = rnd.labels.counts
    flat = logprobs[: sum(counts)].to("cpu", torch.float64).numpy()
    return np.split(flat, np.cumsum(counts))[:-1]
