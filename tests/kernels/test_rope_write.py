"""Norms, rotary positions and page writes: Triton against the reference."""

from __future__ import annotations

import pytest
import torch

from flide_engine.core import GRID
from flide_engine.kernels.rope_write.reference import rope_write_reference
from flide_engine.kernels.rope_write.triton_kernel import rope_write_triton
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

CPU = torch.device("cpu")
SHAPES = {"H2-HV1-D16-R4": (2, 1, 16, 4), "H3-HV1-D20-R10": (3, 1, 20, 10)}


def check(
    slots: tuple[Slot, ...],
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    normed: bool,
    staged: bool = False,
) -> None:
    """Compare queries, keys and pages, for all rows and for the read ones."""
    heads, kv_heads, dim, half = shape
    rnd, host = make_round(slots, device, staged=staged), make_round(slots, CPU)
    count, used = len(rnd.token_ids), len(host.token_ids)
    rng = torch.Generator().manual_seed(count)
    angle = torch.randn(count, 1, half, generator=rng)
    rotation = (angle.cos().to(dtype), angle.sin().to(dtype))
    norms = torch.rand(2, dim, generator=rng) if normed else (None, None)
    wide_norms = [None if norm is None else norm.double() for norm in norms]
    kv = torch.randn(count, 2 * kv_heads, dim, generator=rng).to(dtype)
    for queries, host_queries in ((rnd.every, host.every), (rnd.read, host.read)):
        rows = len(queries.trunk_len)
        query = torch.randn(rows, heads, 2 * dim, generator=rng).to(dtype)[..., :dim]
        pages = torch.full((2, num_pages(slots) * GRID, kv_heads, dim), float("nan"), dtype=dtype)
        truth = pages.double()
        wanted = call(
            rope_write_reference,
            (query[: len(host_queries.trunk_len)].double(), *kv[:used].double().chunk(2, dim=1)),
            (rotation[0][:used].double(), rotation[1][:used].double()),
            *truth,
            host.slot_mapping,
            host_queries.rows,
            *wide_norms,
        )
        ours = pages.to(device)
        outs = call(
            rope_write_triton,
            (query.to(device), *kv.to(device).chunk(2, dim=1)),
            (rotation[0].to(device), rotation[1].to(device)),
            *ours,
            rnd.slot_mapping,
            queries.rows,
            *(None if norm is None else norm.to(device) for norm in norms),
        )
        for out, part in zip(outs, wanted, strict=True):
            assert out.dtype == dtype
            assert relative_error(out[: len(part)], part) < TOLERANCE[dtype]
        written = truth.isfinite()
        assert torch.equal(ours.isfinite().cpu(), written)
        assert relative_error(ours.cpu()[written], truth[written]) < TOLERANCE[dtype]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_what_the_reference_gives(layout: str, device: torch.device) -> None:
    """In float32, in arrays with room to spare; only trunk rows reach a page."""
    shape = SHAPES["H2-HV1-D16-R4"]
    check(LAYOUTS[layout], shape, torch.float32, device, normed=True, staged=True)


@pytest.mark.parametrize("normed", [True, False], ids=["normed", "plain"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_what_the_reference_gives(
    shape: str, dtype: torch.dtype, normed: bool, device: torch.device
) -> None:
    """Odd sizes, all of a head turned and part of it, with norms and without."""
    check(LAYOUTS["resumed"], SHAPES[shape], dtype, device, normed=normed)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(8, 2, 256, 32), (16, 4, 256, 32), (9, 3, 64, 32)], ids=str)
@pytest.mark.parametrize("layout", BIG)
def test_real_sizes_give_what_the_reference_gives(
    layout: str, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    """Streams and heads of real models."""
    check(BIG[layout], shape, dtype, device, normed=shape[2] == 256, staged=True)
