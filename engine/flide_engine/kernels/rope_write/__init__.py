"""Norms and rotary positions of queries and keys, and the pages of the trunks' keys and values."""

from flide_engine.kernels.rope_write.entry import rope_write

__all__ = ["rope_write"]
