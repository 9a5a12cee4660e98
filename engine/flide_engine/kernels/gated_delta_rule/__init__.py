"""The gated delta rule over segments that start from states named by index."""

from flide_engine.kernels.gated_delta_rule.entry import gated_delta_rule

__all__ = ["gated_delta_rule"]
