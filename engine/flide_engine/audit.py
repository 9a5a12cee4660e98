"""Do restored checkpoints give the answers of computed ones? Asked now and then while serving."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flide_engine.core import Outcome

_log = logging.getLogger(__name__)

ALIKE = 0.02
"""Probabilities that differ by less are the same: packing alone moves them in bfloat16."""


class Audit:
    """Restored answers against computed ones, now and then.

    Args:
        share: of restored requests.

    Attributes:
        checked, mismatched: requests compared, and those whose probabilities were not the same.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._random = random.Random()
        self.checked = 0
        self.mismatched = 0

    def chooses(self) -> bool:
        """Whether the next one is computed again."""
        return self._random.random() < self._share

    def compare(self, restored: Outcome, computed: Outcome) -> None:
        """Count a pair."""
        self.checked += 1
        pairs = zip(restored.probabilities, computed.probabilities, strict=True)
        if any(abs(one - other).max() > ALIKE for one, other in pairs):
            self.mismatched += 1
            _log.error("a restored checkpoint gave other answers than computing: audit it")
