"""Errors as System One writes them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from fastapi.responses import Response
from pydantic import ValidationError

from flide_agent.exceptions import (
    EngineUnavailable,
    FlideError,
    InvalidInput,
    KeyConflict,
    SessionConflict,
    SessionNotFound,
    TimedOut,
    TooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUSY = 529
"""Overloaded, as System One says it; its clients try again."""


class ApiError(Exception):
    """A reply that is not an answer.

    Args:
        status: of the reply.
        kind: the `error_type`.
        message: one sentence for people.
        fields: what else the detail holds.
        headers: of the reply.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        fields: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.detail: Any = {"error_type": kind, "message": message, **(fields or {})}
        self.headers = dict(headers or {})


class InvalidBody(ApiError):
    """What was sent breaks a rule: a list of faults, each with its place."""

    def __init__(self, faults: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(422, "invalid_request_error", "the request breaks a rule")
        self.detail = list(faults)


def fault(
    message: str, *place: str | int, kind: str = "invalid_input", where: str = "body"
) -> InvalidBody:
    """One fault, at a place in the request."""
    return InvalidBody([{"loc": [where, *place], "msg": message, "type": kind}])


def busy(status: int, kind: str, message: str, seconds: float) -> ApiError:
    """Try again after some time."""
    headers = {"retry-after-ms": str(round(1e3 * seconds)), "retry-after": str(math.ceil(seconds))}
    return ApiError(status, kind, message, headers=headers)


def of(error: FlideError) -> ApiError:
    """The reply that tells of an error."""
    match error:
        case TooLarge():
            return ApiError(413, "context_too_large", str(error))
        case InvalidInput(__cause__=ValidationError() as cause):
            return InvalidBody(faults_of(cause))
        case InvalidInput():
            return fault(str(error))
        case SessionNotFound():
            return ApiError(404, "session_not_found", str(error))
        case SessionConflict(head=head):
            return ApiError(409, "session_conflict", str(error), fields={"head": head})
        case KeyConflict():
            return ApiError(409, "key_conflict", str(error))
        case TimedOut():
            return busy(BUSY, "timeout_error", str(error), 1.0)
        case EngineUnavailable():
            return ApiError(503, "engine_unavailable", str(error))
    return ApiError(500, "internal_error", str(error))


def reply(error: ApiError) -> Response:
    """The response; its body is valid JSON whatever was quoted in it."""
    written = json.dumps({"detail": error.detail}, ensure_ascii=False, separators=(",", ":"))
    return Response(
        written.encode(errors="replace"),
        error.status,
        headers=error.headers,
        media_type="application/json",
    )


def faults_of(error: ValidationError) -> list[dict[str, Any]]:
    """Every fault of a pydantic error, without what was sent: it may be large, or no JSON."""
    return [
        {"loc": ["body", *each["loc"]], "msg": each["msg"], "type": each["type"]}
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    ]
