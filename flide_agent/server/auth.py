"""Who asks: the tenant of the key that came with a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from flide_agent.server.errors import ApiError
from flide_agent.server.keys import Caller

if TYPE_CHECKING:
    from flide_agent.server.keys import Keys
    from flide_agent.server.settings import Limits

_HEADERS = {"www-authenticate": "Bearer"}

# For the document only: it would answer a missing key in words of its own.
_bearer = HTTPBearer(auto_error=False, description="An API key, where the server has any.")


class Auth:
    """Finds out who asks.

    Args:
        keys: those that are known; None lets everybody in.
        limits: of everybody, where there are no keys.
    """

    def __init__(self, keys: Keys | None, limits: Limits) -> None:
        self._keys = keys
        self._everybody = Caller("", limits)

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in."""
        return self._keys is None

    def limits_of(self, tenant: str) -> Limits:
        """What a tenant may do."""
        return self._everybody.limits if self._keys is None else self._keys.limits_of(tenant)

    def caller(self, authorization: str | None) -> Caller:
        """Who sent this header.

        Raises:
            ApiError: it holds no key, or none that is known.
        """
        if self._keys is None:
            return self._everybody
        scheme, _, key = (authorization or "").partition(" ")
        # Looked up even if there is none, so that both refusals take the same time.
        found = self._keys.find(key.strip().encode("latin-1", "replace"))
        if scheme.lower() != "bearer" or not key.strip():
            raise _refused("no API key was sent: send one as Authorization: Bearer <key>.")
        if found is None:
            raise _refused("the API key is not known: check it, or ask the server's owner for one.")
        return found


async def authenticate(request: Request, _: Annotated[object, Security(_bearer)]) -> Caller:
    """The caller of a request; nothing else of it has been read yet."""
    auth: Auth = request.app.state.auth
    caller = auth.caller(request.headers.get("authorization"))
    request.state.notes["tenant"] = caller.tenant
    return caller


AnyCaller = Annotated[Caller, Depends(authenticate)]
"""An endpoint's argument: who asks."""


def _refused(message: str) -> ApiError:
    return ApiError(401, "authentication_error", message, headers=_HEADERS)
