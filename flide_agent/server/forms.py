"""Bodies that only the routes of sessions know."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from flide_agent.session_types import Seconds


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CreateRequest(_Form):
    """A new session.

    Attributes:
        id: its key; by default a new one.
        messages: its first ones.
        ttl: seconds without use after which it may be dropped.
    """

    id: str | None = None
    messages: list[Any] = []
    ttl: Seconds | None = None


class ForkRequest(_Form):
    """Where to fork.

    Attributes:
        at: a head; by default the session's newest.
    """

    at: str | None = None


class RewindRequest(_Form):
    """Where to go back to.

    Attributes:
        to: a head.
    """

    to: str
