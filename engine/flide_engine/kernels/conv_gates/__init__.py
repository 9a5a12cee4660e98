"""What a gated delta rule takes, from a layer's projections: convolution, norms and gates."""

from flide_engine.kernels.conv_gates.entry import conv_gates

__all__ = ["conv_gates"]
