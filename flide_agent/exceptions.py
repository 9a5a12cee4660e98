"""What this package raises on purpose, as one tree.

    FlideError
    ├── InvalidInput       the caller's input breaks a rule (also a ValueError)
    │   └── TooLarge       it can never fit the model's context or the engine's memory
    ├── MissingExtra       a part that is installed on request is not there (also an ImportError)
    ├── SessionNotFound    the session, or the head of it that was named, is not held (any more)
    ├── SessionConflict    somebody else appended to the session first
    ├── KeyConflict        an idempotency key was used again for something else
    ├── TimedOut           there was no answer in the time given (also a TimeoutError)
    ├── EngineUnavailable  the engine cannot answer, whatever is asked
    │   ├── Unauthorized       the server does not know the API key
    │   └── Busy               too much is asked of the server; later it may answer
    └── ActionRefused      a policy did not allow what was about to happen
        ├── ActionBlocked      it must not happen
        └── ActionNeedsReview  a person should look at it first

Catch `FlideError` to catch them all. Every message is one sentence meant for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flide_agent.policy import Decision


class FlideError(Exception):
    """Base of everything this package raises on purpose."""


class InvalidInput(FlideError, ValueError):
    """The input breaks a rule; the message says where, what was given, the rule and the way out."""


class TooLarge(InvalidInput):
    """The input can never be answered here: longer than the context, or than the whole pool."""


class MissingExtra(FlideError, ImportError):
    """An optional part is not installed; the message holds the command that installs it."""


class SessionNotFound(FlideError, LookupError):
    """The session, or a head of it, is not held: send its whole history again."""


class SessionConflict(FlideError):
    """Somebody else appended to the session first.

    Attributes:
        head: the session's newest head.
    """

    def __init__(self, message: str, head: str) -> None:
        super().__init__(message)
        self.head = head


class KeyConflict(FlideError):
    """An idempotency key was used before, for another question or another history."""


class TimedOut(FlideError, TimeoutError):
    """There was no answer in the time given; the work was given up."""


class EngineUnavailable(FlideError):
    """The engine cannot answer, whatever is asked."""


class Unauthorized(EngineUnavailable):
    """The server does not know the API key, or was sent none."""


class Busy(EngineUnavailable):
    """The server has too much in hand, of this tenant or of all: try again later."""


class ActionRefused(FlideError):
    """A policy did not allow what was about to happen, so it did not happen.

    Attributes:
        decision: what was decided, and why.
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        return self.decision.reason


class ActionBlocked(ActionRefused):
    """The policy blocks it."""


class ActionNeedsReview(ActionRefused):
    """The policy wants a person to look at it first."""
