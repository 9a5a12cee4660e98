"""Random rounds of every layout for kernel tests, and how far a result may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from flide_engine.arrays import Capacity, DeviceArrays, StagedArrays
from flide_engine.core import GRID, Branch
from flide_engine.pack import Trunk, pack
from flide_engine.storage import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flide_engine.round import Round

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
NUM_STATES = 16
NO_LABELS = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class Slot:
    """A trunk of `length`, resumed at `start`; branches are lengths, or (length, fork)."""

    length: int
    branches: tuple[int | tuple[int, int], ...] = ()
    start: int = 0
    saves: tuple[int, ...] = ()


LAYOUTS: dict[str, tuple[Slot, ...]] = {
    "one-token": (Slot(1, (3,)),),
    "below-conv": (Slot(2, (1, 2, 5)), Slot(1, (1,))),
    "grid-edges": (Slot(63, (64,)), Slot(64, (1,)), Slot(65, (65,), saves=(64,))),
    "forks": (Slot(200, ((70, 64), 3, (40, 128), (1, 192)), saves=(64, 192)),),
    "resumed": (Slot(131, (9, (6, 128)), start=64, saves=(128,)), Slot(65, ((1, 64),), start=64)),
    "no-branches": (Slot(130, saves=(128,)), Slot(7)),
    "long-branches": (Slot(5, (130, 64)), Slot(66, (71,))),
    "many": (Slot(3, (1, 1)), Slot(129, (5,)), Slot(70, (), start=64), Slot(96, (33, 1, 2))),
}

BIG: dict[str, tuple[Slot, ...]] = {
    "one-question": (Slot(350, (60,)),),
    "many-questions": (Slot(350, tuple(range(30, 77)), saves=(320,)),),
    "long": (Slot(2501, (115,) * 18, saves=(2432,)),),
    "step": (Slot(13220, (60, 61, 62, (70, 13184)), start=12992, saves=(13184,)),),
}
"""For the GPU."""


def make_round(
    slots: tuple[Slot, ...],
    device: torch.device,
    *,
    staged: bool = False,
    conv_width: int = 4,
    tile_rows: int = 16,
) -> Round:
    """Pack a layout on scattered pages; states are handed out from 0 in order.

    Args:
        slots: what to pack.
        device: where the arrays go.
        staged: in arrays of more than the size needed, as a captured graph has them.
        conv_width: W.
        tile_rows: of fork attention.
    """
    rng = np.random.default_rng(0)
    free = rng.permutation(num_pages(slots)).tolist()
    states = iter(range(NUM_STATES))
    trunks = []
    for slot in slots:
        forks = [b if isinstance(b, tuple) else (b, None) for b in slot.branches]
        trunks.append(
            Trunk(
                rng.integers(0, 9, slot.length),
                [Branch(rng.integers(0, 9, n), NO_LABELS, fork) for n, fork in forks],
                [free.pop() for _ in range(-(-slot.length // GRID))],
                slot.start,
                next(states) if slot.start else -1,
                {place: next(states) for place in slot.saves},
            )
        )
    layout = Layout(attention_layers=1, heads=1, kv_heads=1, head_dim=1, conv_width=conv_width)
    if not staged:
        return pack(trunks, layout, NUM_STATES, DeviceArrays(device, tile_rows))
    rows = sum(trunk.tail + sum(len(b.token_ids) for b in trunk.branches) for trunk in trunks)
    branches = sum(len(trunk.branches) for trunk in trunks)
    saves = sum(len(trunk.saves) for trunk in trunks)
    pages = max(len(trunk.pages) for trunk in trunks) + 16
    slots_room, labels = len(trunks) + 2, branches + 3
    capacity = Capacity(rows + 37, pages, slots_room, branches + 1, labels, saves + 1)
    arrays = StagedArrays(capacity, conv_width, tile_rows, device)
    rnd = pack(trunks, layout, NUM_STATES, arrays)
    arrays.copy()
    return rnd


def num_pages(slots: tuple[Slot, ...]) -> int:
    """Pages a round needs, and one that nobody uses."""
    return sum(-(-slot.length // GRID) for slot in slots) + 1


def call(operation: Callable[..., Any], operands: Iterable[torch.Tensor], *rest: Any) -> Any:
    """An operation on tensors that were all moved or widened in the same way, and the rest."""
    return operation(*operands, *rest)


def relative_error(out: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over the norm of the truth; NaN where anything is NaN."""
    out, wanted = out.detach().cpu().double(), wanted.cpu().double()
    assert out.shape == wanted.shape
    return float((out - wanted).norm() / wanted.norm().clamp(min=1e-30))
