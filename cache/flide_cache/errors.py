"""What can go wrong inside a store. Callers never see these: `base` counts them and makes a miss.

StoreError
├── Unreachable   the server does not answer, or not in time for one command
├── Late          the deadline of the whole call has passed
├── Paused        a breaker is open: nobody is asked for a while
├── Full          the server has no memory left for writes
├── Refused       the server answers, and says no: password, permission, read-only replica
├── Missing       a part of a value is gone, though its manifest is there
├── WrongSize     the value and the buffer that should take it differ in size
├── Damaged       bytes that are not what was written, or of another format version
└── Foreign       bytes that were written for another key, or for another place in a value
"""

from __future__ import annotations

from typing import ClassVar


class StoreError(Exception):
    """Anything that a store turns into a miss; `kind` is the word it is counted under."""

    kind: ClassVar[str] = "other"


class Unreachable(StoreError):
    """The server does not answer, or not in time for one command."""

    kind = "unreachable"


class Late(StoreError):
    """The deadline of the whole call has passed."""

    kind = "late"


class Paused(StoreError):
    """A breaker is open: nobody is asked for a while."""

    kind = "paused"


class Full(StoreError):
    """The server has no memory left for writes."""

    kind = "full"


class Refused(StoreError):
    """The server answers, and says no."""

    kind = "refused"


class Missing(StoreError):
    """A part of a value is gone, though its manifest is there."""

    kind = "missing"


class WrongSize(StoreError):
    """The value and the buffer that should take it differ in size."""

    kind = "wrong size"


class Damaged(StoreError):
    """Bytes that are not what was written, or of another format version."""

    kind = "damaged"


class Foreign(StoreError):
    """Bytes that were written for another key, or for another place in a value."""

    kind = "foreign"
