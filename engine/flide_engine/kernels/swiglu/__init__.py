"""The gated activation of the feed-forward part."""

from flide_engine.kernels.swiglu.entry import swiglu

__all__ = ["swiglu"]
