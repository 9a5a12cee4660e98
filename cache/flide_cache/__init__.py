"""Checkpoint parts by key, in tiers: host memory, Redis.

`flide_cache.redis`, `.link` and `.records` need more packages and are imported by name.
"""

from flide_cache.base import CheckpointStore, Held, Stats, Value, Want
from flide_cache.codec import Kind
from flide_cache.errors import StoreError
from flide_cache.host import HostStore
from flide_cache.keys import Namespace
from flide_cache.policy import Admission, Choice, RestoreModel, Speed
from flide_cache.tiered import Tier, TieredStore

__all__ = [
    "Admission",
    "CheckpointStore",
    "Choice",
    "Held",
    "HostStore",
    "Kind",
    "Namespace",
    "RestoreModel",
    "Speed",
    "Stats",
    "StoreError",
    "Tier",
    "TieredStore",
    "Value",
    "Want",
]
