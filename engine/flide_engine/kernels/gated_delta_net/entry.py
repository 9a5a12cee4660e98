"""The door to the heart of a Gated DeltaNet layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flide_engine.kernels.gated_delta_net.reference import gated_delta_net_reference

if TYPE_CHECKING:
    import torch

    from flide_engine.round import ConvSources, Segments


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a layer learned, besides its two products; HV value heads of V, key heads of K.

    Attributes:
        value_heads, key_dim, value_dim: HV, K, V.
        conv: `[W, channels]`, queries, keys, then values; the last for the row itself.
        log_decay, dt_bias: `[HV]` in at least float32 (A_log and dt_bias of checkpoints).
        norm: `[V]` in at least float32.
        eps: of that norm.
    """

    value_heads: int
    key_dim: int
    value_dim: int
    conv: torch.Tensor
    log_decay: torch.Tensor
    dt_bias: torch.Tensor
    norm: torch.Tensor
    eps: float


def gated_delta_net(
    z: torch.Tensor,
    mixed: torch.Tensor,
    gates: torch.Tensor,
    parameters: Parameters,
    windows: torch.Tensor,
    states: torch.Tensor,
    sources: ConvSources,
    segments: Segments,
) -> torch.Tensor:
    """Convolution, gates, the gated delta rule, and a gated norm (Yang et al., 2025).

    Queries, keys and values go through a causal convolution and SiLU; queries and keys are then
    normed. Every segment is folded into its state and read back (equation 4 of the paper): `S_t =
    exp(decay_t) S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T` and `o_t = S_t q_t`, in chunks
    of `GRID` rows counted from the start of the segment, where `decay = -exp(log_decay)
    softplus(a + dt_bias)` and `beta = sigmoid(b)`. Last `rms_norm(o) * silu(z)`.

    A branch starts from the state that its trunk reaches in this same call.

    Args:
        z: `[T, HV * V]`.
        mixed: `[T, channels]`, queries, keys and values before the convolution.
        gates: `[T, 2 * HV]`, write strengths (b), then decays (a).
        parameters: of the layer.
        windows: `[num_states, W - 1, channels]` inputs of the convolution that states left, oldest
            first; `sources.save_states` are written.
        states: `[num_states, HV, K, V]` in at least float32; `segments.state_out` are written.
        sources: which rows or saved inputs come before each row.
        segments: where the segments lie and which states they start from and leave.

    Returns:
        `[T, HV * V]` in the dtype of z.
    """
    operands = (z, mixed, gates, parameters, windows, states, sources, segments)
    if not mixed.is_cuda:
        return gated_delta_net_reference(*operands)
    from flide_engine.kernels.gated_delta_net.triton_kernel import gated_delta_net_triton

    return gated_delta_net_triton(*operands)
