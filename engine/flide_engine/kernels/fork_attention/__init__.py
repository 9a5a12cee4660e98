"""Attention of a flat stream: every row sees its trunk's keys through pages, and its own branch."""

from flide_engine.kernels.fork_attention.entry import fork_attention

__all__ = ["fork_attention"]
