"""A round in arrays of fixed shape is the round."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flide_engine.arrays import Capacity, DeviceArrays, StagedArrays
from flide_engine.pack import pack
from tests.support.rounds import NUM_STATES, Pages, trunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.engine.conftest import Checkpoint

CPU = torch.device("cpu")
TILE_ROWS = 32
CAPACITY = Capacity(tokens=512, pages=5, slots=4, branches=9, labels=2000, saves=3)


def tensors(part: object, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every array of a round by name."""
    if isinstance(part, torch.Tensor):
        yield prefix, part
    elif is_dataclass(part):
        for field in fields(part):
            yield from tensors(getattr(part, field.name), f"{prefix}.{field.name}")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_staged_arrays_begin_with_the_round_and_end_with_nothing(
    checkpoint: Checkpoint, seed: int
) -> None:
    """Rounds of other sizes, one after the other in one buffer: values first, fill after them."""
    layout = checkpoint.float32.layout
    staged = StagedArrays(CAPACITY, layout.conv_width, TILE_ROWS, CPU)
    rng = np.random.default_rng(seed)
    for lengths in ([(130, [3, 70]), (1, []), (64, [1])], [(65, [2])], [(200, []), (66, [9] * 8)]):
        pages = Pages(rng)
        trunks = [trunk(rng, pages, length, branches) for length, branches in lengths]
        trunks[0].saves = {64: 5}
        plain = pack(trunks, layout, NUM_STATES, DeviceArrays(CPU, TILE_ROWS))
        fixed = pack(trunks, layout, NUM_STATES, staged)
        staged.copy()
        moved = {".segments.start", ".segments.length", ".segments.state_in", ".segments.chunks"}
        wanted = dict(tensors(plain))
        for name, array in tensors(fixed):
            if name not in moved:
                here = tuple(slice(size) for size in wanted[name].shape)
                assert torch.equal(array[here], wanted[name]), name
        spread = torch.cat([torch.arange(len(trunks)), 4 + torch.arange(len(plain.read.spans))])
        for name in ("start", "length", "state_in"):
            assert torch.equal(getattr(fixed.segments, name)[spread], wanted[f".segments.{name}"])
        used = len(plain.token_ids)
        assert (fixed.slot_mapping[used:] == -1).all()
        assert (fixed.every.trunk_len[used:] == 0).all()
        assert (fixed.segments.chunks[len(plain.segments.chunks) :] == -1).all()
        assert (fixed.labels.start[len(plain.read.spans) :] == len(plain.labels.token_ids)).all()


def test_a_capacity_holds_what_is_no_larger_in_any_way() -> None:
    """One number more, whichever it is, does not fit."""
    assert CAPACITY.holds(CAPACITY)
    for field in fields(CAPACITY):
        values = {f.name: getattr(CAPACITY, f.name) for f in fields(CAPACITY)}
        values[field.name] += 1
        assert not CAPACITY.holds(Capacity(**values))
