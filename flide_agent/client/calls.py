"""What a client asks of a serving side, whichever way it gets there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_agent.session_types import Answers, AppendRequest, AskRequest
    from flide_agent.types import SystemOneRequest


@dataclass(frozen=True, slots=True)
class SystemOne:
    """Questions about a state, without a session. Replied to with a `SystemOneResponse`."""

    request: SystemOneRequest


@dataclass(frozen=True, slots=True)
class Append:
    """What happened. Replied to with a `SessionInfo`."""

    session: str
    request: AppendRequest


@dataclass(frozen=True, slots=True)
class Ask:
    """What happened, and questions. Replied to with `Answers`."""

    session: str
    request: AskRequest


@dataclass(frozen=True, slots=True)
class Fork:
    """Another session with the history at a head. Replied to with a `SessionDescription`."""

    session: str
    at: str


@dataclass(frozen=True, slots=True)
class Rewind:
    """An earlier head becomes the newest. Replied to with a `SessionDescription`."""

    session: str
    to: str


@dataclass(frozen=True, slots=True)
class Describe:
    """Where the session stands, with its texts. Replied to with a `SessionDescription`."""

    session: str
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """The session may be forgotten. Replied to with a bool: whether it was held."""

    session: str


Call = SystemOne | Append | Ask | Fork | Rewind | Describe | Drop


class Transport(Protocol):
    """The way to a serving side.

    `tenant` is None for the one that the way itself stands for, such as the owner of an API key.
    Errors are those of `flide_agent.exceptions`.
    """

    def send(self, call: Call, *, tenant: str | None, timeout: float | None) -> Any:
        """Do it and give the reply; raises TimedOut after so many seconds."""

    async def asend(self, call: Call, *, tenant: str | None, timeout: float | None) -> Any:
        """The same without holding up the event loop."""

    def watch(
        self,
        session: str,
        request: AskRequest,
        callback: Callable[[Answers], Any] | None,
        *,
        tenant: str | None,
    ) -> Callable[[], None]:
        """Ask the same at every append; returns what stops it."""

    def close(self) -> None:
        """Let go of what the transport holds."""

    async def aclose(self) -> None:
        """The same without holding up the event loop."""
