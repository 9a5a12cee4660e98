"""The one place where a failure becomes a miss: counted, and at times logged."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from flide_cache.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("flide_cache")

_LOG_EVERY = 60.0


class Careful:
    """Counts what happens to it, and lets nothing that fails out.

    Args:
        name: it is counted and logged under.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._logged: dict[str, float] = {}

    def _attempt(self, call: Callable[[], object]) -> bool:
        """Whether the call went well. A cache may only make things faster, so nothing passes."""
        try:
            call()
        except Exception as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: Exception) -> None:
        """A failure was met: counted under its kind, and logged once a minute at most."""
        expected = isinstance(error, StoreError)
        kind = error.kind if isinstance(error, StoreError) else "unexpected"
        self._count(f"failed:{kind}", 1)
        now = time.monotonic()
        with self._counting:
            if now - self._logged.get(kind, -math.inf) < _LOG_EVERY:
                return
            self._logged[kind] = now
        log.warning("%s: %s: %s", self.name, kind, error, exc_info=None if expected else error)

    def _count(self, what: str, amount: int) -> None:
        if amount:
            with self._counting:
                self._counts[what] += amount

    def _counted(self) -> dict[str, int]:
        with self._counting:
            return dict(self._counts)
