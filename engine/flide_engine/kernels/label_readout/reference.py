"""The readout in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from flide_engine.round import Labels


def label_readout_reference(
    hidden: torch.Tensor, head: torch.Tensor, labels: Labels
) -> torch.Tensor:
    """See `label_readout`."""
    rows = head[labels.token_ids].to(hidden.dtype)
    logits = torch.linalg.vecdot(hidden[labels.row], rows)
    parts = logits.split_with_sizes(list(labels.counts))
    return torch.cat([part.log_softmax(-1) for part in parts]) if parts else logits
