"""The door to the gated delta rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.kernels.gated_delta_rule.reference import gated_delta_rule_reference

if TYPE_CHECKING:
    import torch

    from flide_engine.round import Segments


def gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    decay: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    segments: Segments,
) -> torch.Tensor:
    """Fold every segment into its state and read it back, trunks before branches.

    Equation 4 of the paper: `S_t = exp(decay_t) S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T`
    and `o_t = S_t q_t`, in chunks of `GRID` rows counted from the start of the segment. A branch
    starts from the state that its trunk reaches in this same call.

    Args:
        query, key: `[T, key_heads, K]`, normalised; query scaled.
        value: `[T, value_heads, V]`; each key head serves value_heads / key_heads of them in a row.
        decay: `[T, value_heads]`, logarithms <= 0. beta: `[T, value_heads]`.
        states: `[num_states, value_heads, K, V]` the pool's states of this layer, K first; those of
            `segments.state_out` are written.
        segments: where the segments lie and which states they start from and leave.

    Returns:
        `[T, value_heads, V]` in the dtype of `value`.
    """
    operands = (query, key, value, decay, beta, states, segments)
    if not query.is_cuda:
        return gated_delta_rule_reference(*operands)
    from flide_engine.kernels.gated_delta_rule.triton_kernel import gated_delta_rule_triton

    return gated_delta_rule_triton(*operands)
