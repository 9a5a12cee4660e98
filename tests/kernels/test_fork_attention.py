"""Fork attention: Triton against the reference, and its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from flide_engine.core import GRID
from flide_engine.kernels.fork_attention import tiles as tiles_module
from flide_engine.kernels.fork_attention.reference import fork_attention_reference
from flide_engine.kernels.fork_attention.tiles import Splitting, plan_tiles, tile_capacity
from flide_engine.kernels.fork_attention.triton_kernel import fork_attention_triton, tile_rows
from tests.kernels.rounds import (
    BIG,
    LAYOUTS,
    TOLERANCE,
    Slot,
    call,
    make_round,
    num_pages,
    relative_error,
)

if TYPE_CHECKING:
    from flide_engine.round import Round

NAN = float("nan")
CPU = torch.device("cpu")
SHAPES = {"H4-HV2-D16": (4, 2, 16), "H6-HV1-D20": (6, 1, 20), "H3-HV3-D64": (3, 3, 64)}


def check(
    slots: tuple[Slot, ...],
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    gated: bool = False,
    staged: bool = False,
) -> None:
    """Compare outputs for all rows and for the read ones; unwritten memory is NaN."""
    heads, kv_heads, dim = shape
    rows = tile_rows(heads // kv_heads, dim, dtype)
    rnd = make_round(slots, device, staged=staged, tile_rows=rows)
    host = make_round(slots, CPU)
    count = len(rnd.token_ids)
    rng = torch.Generator().manual_seed(count)
    # Keys and values are halves of one product, as in a layer.
    key, value = torch.randn(count, 2 * kv_heads, dim, generator=rng).to(dtype).chunk(2, dim=1)
    key_pages, value_pages = (_pages(slots, host, rows, rng) for rows in (key, value))
    for queries, wanted_queries in ((rnd.every, host.every), (rnd.read, host.read)):
        wide = torch.randn(len(queries.trunk_len), heads, 2 * dim, generator=rng).to(dtype)
        query, gate = wide.chunk(2, dim=-1)
        operands = [query, key, value, key_pages, value_pages]
        out = call(
            fork_attention_triton,
            (operand.to(device) for operand in operands),
            rnd,
            queries,
            dim**-0.5,
            queries.tiles,
            gate.to(device) if gated else None,
        )
        used = len(wanted_queries.trunk_len)
        operands[0] = query[:used]
        wanted = call(
            fork_attention_reference,
            (operand.double() for operand in operands),
            host,
            wanted_queries,
            dim**-0.5,
            gate[:used].double() if gated else None,
        )
        assert out.dtype == dtype
        assert relative_error(out[:used], wanted) < TOLERANCE[dtype]


def _pages(
    slots: tuple[Slot, ...], host: Round, rows: torch.Tensor, rng: torch.Generator
) -> torch.Tensor:
    """Pages of keys or values: every trunk's, the round's own rows written; the rest NaN."""
    pages = torch.full((num_pages(slots) * GRID, *rows.shape[1:]), NAN, dtype=rows.dtype)
    for slot, table in zip(slots, host.pages, strict=True):
        place = np.arange(slot.length)
        filled = torch.randn(slot.length, *rows.shape[1:], generator=rng)
        pages[np.array(table)[place // GRID] * GRID + place % GRID] = filled.to(rows.dtype)
    pages[host.slot_mapping[: host.num_trunk_rows]] = rows[: host.num_trunk_rows]
    return pages


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_what_the_reference_gives(layout: str, device: torch.device) -> None:
    """In float32, all rows and the read ones, in arrays with room to spare."""
    check(LAYOUTS[layout], SHAPES["H4-HV2-D16"], torch.float32, device, staged=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_what_the_reference_gives(
    shape: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Odd head counts and sizes, with a gate."""
    check(LAYOUTS["forks"], SHAPES[shape], dtype, device, gated=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_splits_give_what_the_reference_gives(
    dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With splits of 128 keys and more: a resumed trunk, branches here and there."""
    monkeypatch.setattr(tiles_module, "WIDE", Splitting(128, 2, 192, 3))
    monkeypatch.setattr(tiles_module, "SINGLE", Splitting(128, 3, 128, 3))
    slots = (Slot(450, (3, (20, 128), (9, 384)), start=384), Slot(140, (66,), start=64))
    check(slots, SHAPES["H4-HV2-D16"], dtype, device, gated=True)


def test_a_row_is_tiled_by_its_position_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh or resumed, alone or not: a trunk row's tile and splits are the same."""
    monkeypatch.setattr(tiles_module, "WIDE", Splitting(128, 2, 192, 3))
    monkeypatch.setattr(tiles_module, "SINGLE", Splitting(128, 3, 128, 3))

    def pieces(slots: tuple[Slot, ...]) -> dict[int, set[tuple[int, ...]]]:
        """The neighbours and splits of each position of the last slot from 192 on."""
        rnd = make_round(slots, CPU)
        position = rnd.positions.numpy()
        found: dict[int, set[tuple[int, ...]]] = {}
        work = plan_tiles(rnd.every.spans, len(slots), 8).work.tolist()
        for first, count, slot, start, end, own, _ in work:
            if slot == len(slots) - 1 and own < 0:
                tile = position[first : first + count].tolist()
                for place in tile:
                    found.setdefault(place, set()).add((*tile, start, end))
        return {place: splits for place, splits in found.items() if 192 <= place < 700}

    fresh = pieces((Slot(700, (3,)),))
    resumed = pieces((Slot(65, (9, 1)), Slot(700, start=192)))
    assert fresh == resumed
    assert len(fresh) == 700 - 192


@pytest.mark.parametrize("layout", [*LAYOUTS, *BIG])
def test_tables_fit_their_capacity(layout: str) -> None:
    """What a captured graph makes room for holds the round."""
    slots = LAYOUTS.get(layout) or BIG[layout]
    rnd = make_round(slots, CPU)
    tiles = plan_tiles(rnd.every.spans, len(slots), 16)
    room = tile_capacity(len(rnd.token_ids), len(rnd.segments.start), rnd.page_table.shape[1], 16)
    assert tiles.num_partials <= len(tiles.work) <= room[0]
    assert len(tiles.joins) <= room[1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(8, 2, 256), (16, 4, 256), (14, 2, 64), (9, 3, 128)], ids=str)
@pytest.mark.parametrize("layout", [*LAYOUTS, *BIG])
def test_real_sizes_give_what_the_reference_gives(
    layout: str, shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    """Streams and heads of real models."""
    check(LAYOUTS.get(layout) or BIG[layout], shape, dtype, device, gated=True, staged=True)
