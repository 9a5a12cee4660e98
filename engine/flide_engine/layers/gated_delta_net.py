"""A Gated DeltaNet layer over the flat stream (Yang et al., 2025; paper, section 3.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.nn.functional as F

from flide_engine.kernels.gated_delta_net import Parameters, gated_delta_net

if TYPE_CHECKING:
    import torch

    from flide_engine.layers.attention import Rotation
    from flide_engine.round import Queries, Round
    from flide_engine.storage import Storage


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """A short convolution, the gated delta rule, and a gated norm, between two products.

    Attributes:
        index: which recurrent layer of the model this is.
        inputs: `[HV * V + channels + 2 * HV, hidden]`: the gate of the norm (z), the conv channels,
            then write strengths (b) and decays (a).
        parameters: of what lies between; HV and V are its value heads and their size.
        out: `[hidden, HV * V]`.
    """

    index: int
    inputs: torch.Tensor
    parameters: Parameters
    out: torch.Tensor

    def __call__(
        self,
        hidden: torch.Tensor,
        rnd: Round,
        queries: Queries,
        storage: Storage,
        rotation: Rotation,
    ) -> torch.Tensor:
        """`[T, hidden]` to `[Q, hidden]`; the recurrence runs over every row."""
        heads, values = self.parameters.value_heads, self.out.shape[1]
        sizes = [values, self.parameters.conv.shape[1], 2 * heads]
        z, mixed, gates = F.linear(hidden, self.inputs).split_with_sizes(sizes, dim=-1)
        out = gated_delta_net(
            z,
            mixed,
            gates,
            self.parameters,
            storage.windows[self.index],
            storage.recurrent[self.index],
            rnd.conv,
            rnd.segments,
        )
        return F.linear(queries.select(out), self.out)
