"""The readout: Triton against the reference."""

from __future__ import annotations

import pytest
import torch

from flide_engine.kernels.label_readout.reference import label_readout_reference
from flide_engine.kernels.label_readout.triton_kernel import label_readout_triton
from flide_engine.round import Labels
from tests.kernels.rounds import TOLERANCE, relative_error

COUNTS = {"one": [1], "few": [2, 3, 10], "many": [255, 1, 17, 16], "none": []}


def labels_of(counts: list[int], device: torch.device, spare: int) -> Labels:
    """Random labels for rows of these counts; `spare` rows and labels belong to nobody."""
    total = sum(counts)
    starts = torch.tensor([0, *counts]).cumsum(0)
    return Labels(
        token_ids=torch.randint(0, 301, (total + spare,)).to(device),
        row=torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts).long()),
        start=torch.cat([starts, starts[-1:].expand(spare)]).to(device),
        counts=tuple(counts),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("spare", [0, 3])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_each_question_is_normalised_over_its_own_labels(
    counts: list[int], spare: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Also for 255 labels, and beside rows that are not used."""
    torch.manual_seed(len(counts))
    hidden = torch.randn(len(counts) + spare, 75)
    head = torch.randn(301, 75).to(dtype)
    labels = labels_of(counts, device, spare)
    out = label_readout_triton(hidden.to(device), head.to(device), labels).cpu()
    total = sum(counts)
    where = Labels(labels.token_ids[:total].cpu(), labels.row, labels.start.cpu(), labels.counts)
    wanted = label_readout_reference(hidden.double(), head, where)
    if total:
        assert relative_error(out[:total].exp(), wanted.exp()) < TOLERANCE[torch.float32]
