"""What a store must do, as tests to inherit: `CheckpointStoreTests` and `StoreMachine`.

Needs pytest and hypothesis.
"""

from flide_cache.testing.contract import CheckpointStoreTests
from flide_cache.testing.machine import StoreMachine
from flide_cache.testing.values import Raw, buffer_for, load_one, namespace, put, value_of

__all__ = [
    "CheckpointStoreTests",
    "Raw",
    "StoreMachine",
    "buffer_for",
    "load_one",
    "namespace",
    "put",
    "value_of",
]
