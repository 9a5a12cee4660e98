"""One product for everything a mixer reads of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F

if TYPE_CHECKING:
    import torch

    from flide_engine.round import Queries


def project(
    hidden: torch.Tensor,
    queries: Queries,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    first: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Split `hidden @ weight.T + bias` into what only queries need and what every row needs.

    Args:
        hidden: `[T, hidden]`.
        queries: the rows outputs are computed for, Q of them.
        weight: `[first + rest, hidden]`.
        bias: `[first + rest]` or None.
        first: how many leading columns only queries need.

    Returns:
        `[Q, first]` and `[T, rest]`.
    """
    rest = len(weight) - first
    if queries.rows is None:
        wanted, kept = F.linear(hidden, weight, bias).split_with_sizes([first, rest], dim=-1)
        return wanted, kept
    parts = weight.split_with_sizes([first, rest])
    biases = (None, None) if bias is None else bias.split_with_sizes([first, rest])
    wanted = F.linear(queries.select(hidden), parts[0], biases[0])
    return wanted, F.linear(hidden, parts[1], biases[1])
