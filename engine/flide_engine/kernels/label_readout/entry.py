"""The door to the readout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.kernels.label_readout.reference import label_readout_reference

if TYPE_CHECKING:
    import torch

    from flide_engine.round import Labels


def label_readout(hidden: torch.Tensor, head: torch.Tensor, labels: Labels) -> torch.Tensor:
    """The logarithm of equation 1 of the paper: softmax over a question's own labels only.

    Args:
        hidden: `[R, hidden]` normalised, in at least float32.
        head: `[vocabulary, hidden]` in the model's dtype.
        labels: which tokens may answer which row.

    Returns:
        `[L]` in the dtype of `hidden`, one question's labels after the other.
    """
    if not hidden.is_cuda:
        return label_readout_reference(hidden, head, labels)
    from flide_engine.kernels.label_readout.triton_kernel import label_readout_triton

    return label_readout_triton(hidden, head, labels)
