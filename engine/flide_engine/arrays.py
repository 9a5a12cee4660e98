"""Where the arrays of a round go: onto the host as they are, or into one buffer of fixed shape.

A captured graph reads its metadata at fixed addresses and in fixed shapes. `StagedArrays` gives
every array a place in one buffer, filled up with entries that say "nothing here", so that a round
reaches the device in one copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from flide_engine.core import GRID
from flide_engine.kernels.fork_attention.tiles import tile_capacity

if TYPE_CHECKING:
    import numpy.typing as npt


class Arrays(Protocol):
    """What `pack` writes to.

    Attributes:
        tile_rows: query rows of a tile of fork attention; None where the backend wants no tiles.
    """

    tile_rows: int | None

    def slots(self, count: int) -> int:
        """How many entries trunks take in tables that hold trunks before branches."""
        ...

    def put(self, name: str, values: npt.NDArray[np.int64], fill: int = -1) -> torch.Tensor:
        """Keep an array under a name; where there is more room than values, `fill` follows."""
        ...

    def partials(self, name: str, count: int) -> int:
        """How many partial results of split keys to make room for."""
        ...


class HostArrays:
    """Arrays of exactly the size of the round, on the host."""

    tile_rows: int | None = None

    def slots(self, count: int) -> int:
        """As many as there are."""
        return count

    def put(self, name: str, values: npt.NDArray[np.int64], fill: int = -1) -> torch.Tensor:
        """The array itself."""
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64))

    def partials(self, name: str, count: int) -> int:
        """As many as are used."""
        return count


class DeviceArrays(HostArrays):
    """Arrays of exactly the size of the round, on a device: for rounds that no graph holds."""

    def __init__(self, device: torch.device, tile_rows: int) -> None:
        self.device = device
        self.tile_rows = tile_rows

    def put(self, name: str, values: npt.NDArray[np.int64], fill: int = -1) -> torch.Tensor:
        """The array on the device."""
        return super().put(name, values, fill).to(self.device)


@dataclass(frozen=True, slots=True, order=True)
class Capacity:
    """How large a round a captured graph takes.

    Attributes:
        tokens: T, rows of the stream.
        pages: of the longest trunk.
        slots, branches, labels, saves: S, B, L and saved states.
    """

    tokens: int
    pages: int
    slots: int
    branches: int
    labels: int
    saves: int

    @property
    def chunks(self) -> int:
        """C: every segment may end in a chunk that is not full."""
        return self.tokens // GRID + self.slots + self.branches

    def holds(self, need: Capacity) -> bool:
        """Whether a round of that size fits."""
        return all(getattr(self, name) >= getattr(need, name) for name in self.__slots__)

    def works(self, tile_rows: int) -> dict[str, int]:
        """Programs that fork attention takes at most, a tile times its splits, by queries."""
        segments = self.slots + self.branches
        every, _ = tile_capacity(self.tokens, segments, self.pages, tile_rows)
        read, _ = tile_capacity(self.branches, self.branches, self.pages, 1)
        return {"every": every, "read": read}

    def shapes(self, conv_width: int, tile_rows: int) -> dict[str, tuple[int, ...]]:
        """The shape of every array of a round."""
        works = self.works(tile_rows)
        t, s, b, n, back = self.tokens, self.slots, self.branches, self.saves, conv_width - 1
        rows = ("trunk_slot", "trunk_len", "branch_start", "branch_len")
        return {
            "token_ids": (t,),
            "positions": (t,),
            "page_table": (s, self.pages),
            **{f"{name}.work": (count, 7) for name, count in works.items()},
            **{f"{name}.joins": (count, 4) for name, count in works.items()},
            "slot_mapping": (t,),
            **{f"every.{name}": (t,) for name in rows},
            "read.rows": (b,),
            **{f"read.{name}": (b,) for name in rows},
            "labels.token_ids": (self.labels,),
            "labels.row": (self.labels,),
            "labels.start": (b + 1,),
            **{f"segments.{name}": (s + b,) for name in ("start", "length", "state_in")},
            "segments.chunks": (self.chunks, 2),
            "segments.state_out": (self.chunks,),
            "conv.source": (back, t),
            "conv.edge_rows": (back * (s + b),),
            "conv.save_rows": (n, back),
            "conv.save_states": (n,),
        }


class StagedArrays:
    """Arrays of a capacity's shapes, all in one buffer of the device.

    Args:
        capacity: how large they are.
        conv_width: of the model's convolution.
        tile_rows: query rows of a tile of fork attention.
        device: where the buffer lies; its twin on the host is pinned for a CUDA device.
    """

    def __init__(
        self, capacity: Capacity, conv_width: int, tile_rows: int, device: torch.device
    ) -> None:
        self.capacity = capacity
        self.tile_rows: int | None = tile_rows
        self._works = capacity.works(tile_rows)
        shapes = capacity.shapes(conv_width, tile_rows)
        total = sum(prod(shape) for shape in shapes.values())
        self._host = torch.empty(total, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._device = torch.empty(total, dtype=torch.int64, device=device)
        self._staged: dict[str, npt.NDArray[np.int64]] = {}
        self._views: dict[str, torch.Tensor] = {}
        start = 0
        for name, shape in shapes.items():
            part = slice(start, start := start + prod(shape))
            self._staged[name] = self._host[part].view(shape).numpy()
            self._views[name] = self._device[part].view(shape)

    def slots(self, count: int) -> int:
        """All that there is room for."""
        return self.capacity.slots

    def put(self, name: str, values: npt.NDArray[np.int64], fill: int = -1) -> torch.Tensor:
        """Stage an array; it is on the device after `copy`."""
        staged = self._staged[name]
        staged.fill(fill)
        staged[tuple(slice(size) for size in values.shape)] = values
        return self._views[name]

    def partials(self, name: str, count: int) -> int:
        """As many as there could ever be."""
        return self._works[name]

    def copy(self) -> None:
        """Send all that was staged, in one copy that does not wait."""
        self._device.copy_(self._host, non_blocking=True)
