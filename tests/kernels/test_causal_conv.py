"""The convolution, alone and with the norms and gates around it: Triton against the reference."""

from __future__ import annotations

import pytest
import torch

from flide_engine.kernels.causal_conv.reference import causal_conv_reference
from flide_engine.kernels.causal_conv.triton_kernel import causal_conv_triton
from flide_engine.kernels.conv_gates.reference import conv_gates_reference
from flide_engine.kernels.conv_gates.triton_kernel import conv_gates_triton
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

CPU = torch.device("cpu")
SHAPES = {
    "HK2-HV2-K16-V16-W4": (2, 2, 16, 16, 4),
    "HK1-HV3-K12-V20-W2": (1, 3, 12, 20, 2),
    "HK2-HV4-K24-V8-W3": (2, 4, 24, 8, 3),
}


def check(
    slots: tuple[Slot, ...],
    shape: tuple[int, int, int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    staged: bool = False,
) -> None:
    """Compare outputs and windows of both kernels; windows of states nobody left are NaN."""
    key_heads, value_heads, key_dim, value_dim, width = shape
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    rnd = make_round(slots, device, staged=staged, conv_width=width)
    host = make_round(slots, CPU, conv_width=width)
    count, used = len(rnd.token_ids), len(host.token_ids)
    rng = torch.Generator().manual_seed(count)
    # Both inputs are parts of one product, as in a layer.
    both = torch.randn(count, channels + 2 * value_heads, generator=rng).to(dtype)
    mixed, gates = both[:, :channels], both[:, channels:]
    weight = torch.randn(channels, width, generator=rng).to(dtype)
    log_decay, dt_bias = torch.rand(2, value_heads, generator=rng) * 4 - 2
    windows = torch.full((NUM_STATES, width - 1, channels), float("nan"), dtype=dtype)
    for state in host.segments.states[: len(slots)]:
        if state >= 0:
            windows[state] = torch.randn(width - 1, channels, generator=rng).to(dtype)

    truth = windows.double()
    wanted = causal_conv_reference(mixed[:used].double(), weight.double(), truth, host.conv)
    ours = windows.to(device)
    out = causal_conv_triton(both.to(device)[:, :channels], weight.to(device), ours, rnd.conv)
    assert out.dtype == dtype
    assert relative_error(out[:used], wanted) < TOLERANCE[dtype]
    assert torch.equal(ours.cpu().double().nan_to_num(7), truth.nan_to_num(7))

    operands = (weight, log_decay, dt_bias)
    doubles = (operand.double() for operand in (mixed[:used], gates[:used], *operands))
    rest = (host.conv, key_dim, value_dim)
    fused = call(conv_gates_reference, doubles, windows.double(), *rest)
    ours = windows.to(device)
    placed = (operand.to(device) for operand in operands)
    part = both.to(device)
    outs = call(
        conv_gates_triton,
        (part[:, :channels], part[:, channels:], *placed),
        ours,
        rnd.conv,
        key_dim,
        value_dim,
    )
    for result, truth_part in zip(outs, fused, strict=True):
        assert relative_error(result[:used], truth_part) < TOLERANCE[dtype]
    assert [result.dtype for result in outs] == [dtype] * 3 + [torch.float32] * 2
    assert torch.equal(ours.cpu().double().nan_to_num(7), truth.nan_to_num(7))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_what_the_reference_gives(layout: str, device: torch.device) -> None:
    """In float32, in arrays with room to spare; trunks shorter than the convolution too."""
    check(LAYOUTS[layout], SHAPES["HK2-HV2-K16-V16-W4"], torch.float32, device, staged=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_what_the_reference_gives(
    shape: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Odd sizes and widths."""
    check(LAYOUTS["resumed"], SHAPES[shape], dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(16, 16, 128, 128, 4), (16, 32, 128, 128, 4)], ids=str)
@pytest.mark.parametrize("layout", [*LAYOUTS, *BIG])
def test_real_sizes_give_what_the_reference_gives(
    layout: str, shape: tuple[int, int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    """Streams and channels of real models."""
    check(LAYOUTS.get(layout) or BIG[layout], shape, dtype, device, staged=True)
