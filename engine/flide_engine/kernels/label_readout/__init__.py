"""Log-probabilities of each question's labels, read off the last hidden states."""

from flide_engine.kernels.label_readout.entry import label_readout

__all__ = ["label_readout"]
