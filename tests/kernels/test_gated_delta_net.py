"""The heart of a Gated DeltaNet layer: Triton against the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from flide_engine.kernels.gated_delta_net import Parameters
from flide_engine.kernels.gated_delta_net.reference import gated_delta_net_reference
from flide_engine.kernels.gated_delta_net.triton_kernel import gated_delta_net_triton
from tests.kernels.rounds import (
    BIG,
    LAYOUTS,
    NUM_STATES,
    TOLERANCE,
    Slot,
    call,
    make_round,
    relative_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = torch.device("cpu")
Shape = tuple[int, int, int, int, int]
SHAPES: dict[str, Shape] = {
    "HK2-HV2-K16-V16-W4": (2, 2, 16, 16, 4),
    "HK2-HV4-K12-V20-W2": (2, 4, 12, 20, 2),
    "HK1-HV3-K40-V70-W3": (1, 3, 40, 70, 3),
}
REAL: dict[str, Shape] = {
    "0.8B": (16, 16, 128, 128, 4),
    "4B": (16, 32, 128, 128, 4),
    "odd": (3, 6, 64, 96, 4),
}


def draw(
    shape: Shape, count: int, dtype: torch.dtype, alike: float
) -> tuple[Parameters, torch.Tensor]:
    """Parameters, and the product `[T, values + channels + 2 HV]` that the inputs are parts of.

    `alike` is how much of every row's queries and keys is the same; with little decay and full
    writing that is the hard case for the triangular system.
    """
    key_heads, heads, key_dim, value_dim, width = shape
    channels = 2 * key_heads * key_dim + heads * value_dim
    rng = torch.Generator().manual_seed(count)
    product = torch.randn(count, heads * value_dim + channels + 2 * heads, generator=rng)
    conv = torch.randn(width, channels, generator=rng)
    log_decay, dt_bias = torch.rand(2, heads, generator=rng) * 4 - 2
    if alike:
        keys = product[:, heads * value_dim :][:, : 2 * key_heads * key_dim]
        keys.mul_(1 - alike).add_(torch.randn(keys.shape[1], generator=rng), alpha=alike)
        product[:, -2 * heads : -heads] += 8
        conv[:-1], log_decay[:] = 0, -6
    parameters = Parameters(
        value_heads=heads,
        key_dim=key_dim,
        value_dim=value_dim,
        conv=conv.to(dtype),
        log_decay=log_decay,
        dt_bias=dt_bias,
        norm=torch.rand(value_dim, generator=rng) + 0.5,
        eps=1e-6,
    )
    return parameters, product.to(dtype)


def moved(parameters: Parameters, move: Callable[[torch.Tensor], torch.Tensor]) -> Parameters:
    """With every tensor moved or widened in the same way."""
    return replace(
        parameters,
        conv=move(parameters.conv),
        log_decay=move(parameters.log_decay),
        dt_bias=move(parameters.dt_bias),
        norm=move(parameters.norm),
    )


def check(
    slots: tuple[Slot, ...],
    shape: Shape,
    dtype: torch.dtype,
    device: torch.device,
    *,
    staged: bool = False,
    alike: float = 0.0,
) -> None:
    """Compare outputs, states and windows; what nobody wrote is NaN.

    Keys that are rounded while they are nearly equal make another system: there 16 bits may be
    further off.
    """
    tolerance = TOLERANCE[dtype] * (3 if alike and dtype != torch.float32 else 1)
    heads, key_dim, value_dim, width = shape[1:]
    rnd = make_round(slots, device, staged=staged, conv_width=width)
    host = make_round(slots, CPU, conv_width=width)
    count, used = len(rnd.token_ids), len(host.token_ids)
    parameters, product = draw(shape, count, dtype, alike)
    channels = parameters.conv.shape[1]
    sizes = [heads * value_dim, channels, 2 * heads]
    windows = torch.full((NUM_STATES, width - 1, channels), float("nan"), dtype=dtype)
    states = torch.full((NUM_STATES, heads, key_dim, value_dim), float("nan"))
    for state in host.segments.states[: len(slots)]:
        if state >= 0:
            windows[state] = torch.randn(width - 1, channels).to(dtype)
            states[state] = torch.randn(heads, key_dim, value_dim)

    truth = windows.double(), states.double()
    wanted = call(
        gated_delta_net_reference,
        product[:used].double().split_with_sizes(sizes, dim=1),
        moved(parameters, torch.Tensor.double),
        *truth,
        host.conv,
        host.segments,
    )
    ours = windows.to(device), states.to(device)
    out = call(
        gated_delta_net_triton,
        product.to(device).split_with_sizes(sizes, dim=1),
        moved(parameters, lambda x: x.to(device)),
        *ours,
        rnd.conv,
        rnd.segments,
    )
    assert out.dtype == dtype
    assert relative_error(out[:used], wanted) < tolerance
    assert torch.equal(ours[0].cpu().double().nan_to_num(7), truth[0].nan_to_num(7))
    written = truth[1].isfinite()
    assert torch.equal(ours[1].isfinite().cpu(), written)
    assert relative_error(ours[1].cpu()[written], truth[1][written]) < tolerance


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_what_the_reference_gives(layout: str, device: torch.device) -> None:
    """In float32, in arrays with room to spare; trunks shorter than the convolution too."""
    check(LAYOUTS[layout], SHAPES["HK2-HV2-K16-V16-W4"], torch.float32, device, staged=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["forks", "resumed"])
def test_every_shape_gives_what_the_reference_gives(
    layout: str, shape: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Odd head counts, sizes and widths."""
    check(LAYOUTS[layout], SHAPES[shape], dtype, device)


def test_a_branch_of_several_chunks_carries_its_state(device: torch.device) -> None:
    """Past its second chunk too."""
    shape = SHAPES["HK2-HV4-K12-V20-W2"]
    check((Slot(70, (200, 129), saves=(64,)), Slot(3, (260,))), shape, torch.float32, device)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_keys_that_are_nearly_equal_keep_their_precision(
    dtype: torch.dtype, device: torch.device
) -> None:
    """A chunk of the same token over and over: the system is far from the identity."""
    check(LAYOUTS["forks"], SHAPES["HK2-HV2-K16-V16-W4"], dtype, device, alike=0.8)


def test_strong_decays_keep_their_precision(device: torch.device) -> None:
    """Sums of decays grow to thousands, while their differences stay small."""
    slots = (Slot(63, (64,)),)
    rnd = make_round(slots, device)
    parameters, product = draw((1, 1, 16, 16, 2), len(rnd.token_ids), torch.float32, 0.0)
    product[:, -1] = torch.where(torch.arange(len(product)) % 2 == 0, 60.0, -12.0)
    product[:, -2] = 2.0
    parameters = replace(parameters, log_decay=torch.full((1,), 1.5))
    host = make_round(slots, CPU, conv_width=2)
    rnd = make_round(slots, device, conv_width=2)
    parts = product.split_with_sizes([16, 48, 2], dim=1)
    memory = torch.zeros(NUM_STATES, 1, 48), torch.zeros(NUM_STATES, 1, 16, 16)
    wanted = call(
        gated_delta_net_reference,
        (part.double() for part in parts),
        moved(parameters, torch.Tensor.double),
        *(part.double() for part in memory),
        host.conv,
        host.segments,
    )
    out = call(
        gated_delta_net_triton,
        (part.to(device) for part in product.to(device).split_with_sizes([16, 48, 2], dim=1)),
        moved(parameters, lambda x: x.to(device)),
        *(part.to(device) for part in memory),
        rnd.conv,
        rnd.segments,
    )
    apart = (out.cpu().double() - wanted).norm(dim=1) / wanted.norm(dim=1)
    assert float(apart.max()) < 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", REAL)
@pytest.mark.parametrize("layout", [*LAYOUTS, *BIG])
def test_real_sizes_give_what_the_reference_gives(
    layout: str, shape: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Streams and heads of real models."""
    check(LAYOUTS.get(layout) or BIG[layout], REAL[shape], dtype, device, staged=True)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_nearly_equal_keys_of_real_sizes(dtype: torch.dtype, device: torch.device) -> None:
    """The hard case at the sizes of real models."""
    check(BIG["one-question"], REAL["0.8B"], dtype, device, alike=0.8)
