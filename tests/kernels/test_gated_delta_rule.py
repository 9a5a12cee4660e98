"""The gated delta rule: Triton against the reference."""

from __future__ import annotations

import pytest
import torch

from flide_engine.kernels.gated_delta_rule.reference import gated_delta_rule_reference
from flide_engine.kernels.gated_delta_rule.triton_kernel import gated_delta_rule_triton
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
    "HK2-HV2-K16-V16": (2, 2, 16, 16),
    "HK2-HV4-K12-V20": (2, 4, 12, 20),
    "HK1-HV3-K40-V70": (1, 3, 40, 70),
}


def check(
    slots: tuple[Slot, ...],
    shape: tuple[int, int, int, int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    staged: bool = False,
    alike: float = 0.0,
) -> None:
    """Compare outputs and states; what nobody wrote is NaN, in states and scratch too.

    Args:
        slots, shape, dtype, device, staged: as `make_round` wants them, and HK, HV, K, V.
        alike: how much of every key is the same one; with little decay and full writing, the hard
            case for the triangular system.
    """
    key_heads, value_heads, key_dim, value_dim = shape
    rnd, host = make_round(slots, device, staged=staged), make_round(slots, CPU)
    count, used = len(rnd.token_ids), len(host.token_ids)
    rng = torch.Generator().manual_seed(count)

    def unit() -> torch.Tensor:
        common = torch.randn(key_heads, key_dim, generator=rng)
        own = torch.randn(count, key_heads, key_dim, generator=rng)
        return torch.nn.functional.normalize(own * (1 - alike) + common * alike, dim=-1).to(dtype)

    query, key = unit() * key_dim**-0.5, unit()
    # Values are a part of one product, as in a layer.
    product = torch.randn(count, value_heads + 1, value_dim, generator=rng).to(dtype)
    value = product[:, :value_heads]
    decay = -torch.rand(count, value_heads, generator=rng) * (3.0 if alike == 0 else 0.01)
    beta = torch.rand(count, value_heads, generator=rng)
    if alike:
        beta = 1 - 0.01 * beta
    states = torch.full((NUM_STATES, value_heads, key_dim, value_dim), float("nan"))
    for state in host.segments.states[: len(slots)]:
        if state >= 0:
            states[state] = torch.randn(value_heads, key_dim, value_dim, generator=rng)
    operands = (query, key, value, decay, beta)
    ours = states.to(device)
    out = call(gated_delta_rule_triton, (x.to(device) for x in operands), ours, rnd.segments)
    truth = states.double()
    doubles = (x[:used].double() for x in operands)
    wanted = call(gated_delta_rule_reference, doubles, truth, host.segments)
    assert out.dtype == dtype
    assert relative_error(out[:used], wanted) < TOLERANCE[dtype]
    written = truth.isfinite()
    assert torch.equal(ours.isfinite().cpu(), written)
    assert relative_error(ours.cpu()[written], truth[written]) < TOLERANCE[dtype]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_what_the_reference_gives(layout: str, device: torch.device) -> None:
    """In float32, in arrays with room to spare."""
    check(LAYOUTS[layout], SHAPES["HK2-HV4-K12-V20"], torch.float32, device, staged=True)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_gives_what_the_reference_gives(
    shape: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Odd head counts and sizes."""
    check(LAYOUTS["forks"], SHAPES[shape], dtype, device)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_keys_that_are_nearly_equal_keep_their_precision(
    dtype: torch.dtype, device: torch.device
) -> None:
    """A chunk of the same token over and over: the system is far from the identity."""
    check(LAYOUTS["forks"], SHAPES["HK2-HV2-K16-V16"], dtype, device, alike=0.8)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(16, 16, 128, 128), (16, 32, 128, 128), (3, 6, 64, 96)], ids=str)
@pytest.mark.parametrize("layout", [*LAYOUTS, *BIG])
def test_real_sizes_give_what_the_reference_gives(
    layout: str, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    """Streams and heads of real models."""
    check(LAYOUTS.get(layout) or BIG[layout], shape, dtype, device, staged=True)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_nearly_equal_keys_of_real_sizes(dtype: torch.dtype, device: torch.device) -> None:
    """The hard case at the sizes of real models."""
    check(BIG["one-question"], (16, 16, 128, 128), dtype, device, alike=0.8)
