"""The short causal convolution of a recurrent layer, over predecessors named by index."""

from flide_engine.kernels.causal_conv.entry import causal_conv

__all__ = ["causal_conv"]
