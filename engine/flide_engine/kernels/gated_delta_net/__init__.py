"""What a Gated DeltaNet layer does between its two products."""

from flide_engine.kernels.gated_delta_net.entry import Parameters, gated_delta_net

__all__ = ["Parameters", "gated_delta_net"]
