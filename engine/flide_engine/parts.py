"""Pages and states as bytes, and back: what a checkpoint is below the device.

Pages of a stretch of tokens lie as `[layers, keys and values, tokens, kv_heads, head_dim]`; a state
as each layer's matrix, then each layer's window. Raw bytes of the tensors, nothing converted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from flide_engine.core import GRID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_engine.storage import Storage


class Parts:
    """Reads and writes a storage's pages and states as bytes.

    On a GPU reading copies on the device, in the order of its stream, so that pages and states may
    be written anew as soon as a method has returned.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.page_bytes = storage.layout.page_bytes(storage.dtype)
        self.state_bytes = storage.layout.state_bytes(storage.dtype)

    def pages(self, pages: Sequence[int]) -> torch.Tensor:
        """`[count * page_bytes]` uint8 on the storage's device, the bytes of some pages."""
        rows = self._rows(pages)
        taken = [t.index_select(0, rows) for pair in self._pairs() for t in pair]
        return _joined(taken, self._storage.device)

    def state(self, state: int) -> torch.Tensor:
        """`[state_bytes]` uint8 on the storage's device, the bytes of a state."""
        return _joined([t[state] for t in self._states()], self._storage.device)

    def write_pages(self, pages: Sequence[int], given: torch.Tensor) -> None:
        """Write the last pages of a stretch from the stretch's bytes on the host."""
        rows = self._rows(pages)
        count = len(given) // self.page_bytes * GRID
        given = given.to(self._storage.device, non_blocking=True)
        at = 0
        for tensor in (t for pair in self._pairs() for t in pair):
            nbytes = count * tensor[0].nbytes
            stretch = given[at : at + nbytes].view(tensor.dtype).view(count, *tensor.shape[1:])
            tensor.index_copy_(0, rows, stretch[count - len(rows) :])
            at += nbytes

    def write_state(self, state: int, given: torch.Tensor) -> None:
        """Write a state from bytes on the host."""
        given = given.to(self._storage.device, non_blocking=True)
        at = 0
        for tensor in self._states():
            own = tensor[state]
            own.copy_(given[at : at + own.nbytes].view(tensor.dtype).view(own.shape))
            at += own.nbytes

    def _pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(zip(self._storage.keys, self._storage.values, strict=True))

    def _states(self) -> list[torch.Tensor]:
        return [*self._storage.recurrent, *self._storage.windows]

    def _rows(self, pages: Sequence[int]) -> torch.Tensor:
        first = torch.tensor(pages, dtype=torch.int64) * GRID
        return (first[:, None] + torch.arange(GRID)).view(-1).to(self._storage.device)


def _joined(tensors: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    joined = torch.empty(sum(t.nbytes for t in tensors), dtype=torch.uint8, device=device)
    at = 0
    for tensor in tensors:
        joined[at : at + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
        at += tensor.nbytes
    return joined
