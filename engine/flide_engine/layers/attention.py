"""An attention layer over the flat stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from flide_engine.kernels.fork_attention import fork_attention
from flide_engine.kernels.rope_write import rope_write
from flide_engine.layers.projection import project

if TYPE_CHECKING:
    from flide_engine.round import Queries, Round
    from flide_engine.storage import Storage

Rotation = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention, with the options its families have.

    Attributes:
        index: which attention layer of the model this is.
        heads, kv_heads, head_dim: shapes.
        qkv: `[heads * query_width + 2 * kv_heads * head_dim, hidden]`: queries, keys, values; a
            gated head holds its query first and then its gate.
        out: `[hidden, heads * head_dim]`.
        qkv_bias, out_bias: or None.
        q_norm, k_norm: `[head_dim]`, or None for none.
        eps: of those norms.
        gated: the output is multiplied by the sigmoid of a gate.
    """

    index: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv: torch.Tensor
    out: torch.Tensor
    qkv_bias: torch.Tensor | None = None
    out_bias: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None
    eps: float = 1e-6
    gated: bool = False

    @property
    def query_width(self) -> int:
        """Of a head's query, and its gate if it has one."""
        return self.head_dim * (2 if self.gated else 1)

    def __call__(
        self,
        hidden: torch.Tensor,
        rnd: Round,
        queries: Queries,
        storage: Storage,
        rotation: Rotation,
    ) -> torch.Tensor:
        """`[T, hidden]` to `[Q, hidden]`; keys and values are kept of every row."""
        width = self.heads * self.query_width
        query, kv = project(hidden, queries, self.qkv, self.qkv_bias, width)
        query = query.view(-1, self.heads, self.query_width)
        gate = None
        if self.gated:
            query, gate = query.chunk(2, dim=-1)
        key, value = (part.view(-1, self.kv_heads, self.head_dim) for part in kv.chunk(2, dim=-1))
        pages = storage.keys[self.index], storage.values[self.index]
        query, key = rope_write(
            query,
            key,
            value,
            rotation,
            *pages,
            rnd.slot_mapping,
            queries.rows,
            self.q_norm,
            self.k_norm,
            self.eps,
        )
        mixed = fork_attention(query, key, value, *pages, rnd, queries, self.head_dim**-0.5, gate)
        return F.linear(mixed.flatten(-2), self.out, self.out_bias)
