"""Root-mean-square norms, with the sum that goes before them."""

from flide_engine.kernels.fused_norm.entry import add_rms_norm, rms_norm

__all__ = ["add_rms_norm", "rms_norm"]
