"""Calls as HTTP requests, and replies as what they were before."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError

from flide_agent._json import where
from flide_agent.client.calls import Append, Ask, Describe, Drop, Fork, Rewind, SystemOne
from flide_agent.exceptions import (
    Busy,
    EngineUnavailable,
    FlideError,
    InvalidInput,
    KeyConflict,
    SessionConflict,
    SessionNotFound,
    TimedOut,
    TooLarge,
    Unauthorized,
)
from flide_agent.session_types import Answers, SessionDescription, SessionInfo
from flide_agent.types import SystemOneResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from flide_agent.client.calls import Call

_SHOWN = 300


class Wire(NamedTuple):
    """A call as a request.

    Attributes:
        method, path: of the request; the path is encoded.
        body: JSON; None for none.
        headers: besides those of every request.
        read: makes the reply of a good response.
    """

    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]
    read: Callable[[httpx.Response], Any]


def to_wire(call: Call) -> Wire:
    """Write a call as a request; its repeats are the same request."""
    match call:
        case SystemOne(request):
            return _post("/v1/systemone", request, SystemOneResponse)
        case Ask(session, request):
            return _post(f"{_path(session)}/systemone", request, Answers)
        case Append(session, request):
            return _once(_post(f"{_path(session)}/append", request, SessionInfo))
        case Fork(session, at):
            return _once(_post(f"{_path(session)}/fork", {"at": at}, SessionDescription))
        case Rewind(session, to):
            return _once(_post(f"{_path(session)}/rewind", {"to": to}, SessionDescription))
        case Describe(session, at):
            query = urlencode({"turns": "true"} | ({} if at is None else {"at": at}))
            path = f"{_path(session)}?{query}"
            return Wire("GET", path, None, {}, _reader(SessionDescription))
        case Drop(session):
            return Wire("DELETE", _path(session), None, {}, lambda r: bool(r.json()["dropped"]))


def watch_path(session: str) -> str:
    """Where standing questions of a session are asked."""
    return f"{_path(session)}/watch"


def error_of(response: httpx.Response) -> FlideError:
    """What a bad response tells, in any of the forms that System One servers use."""
    status = response.status_code
    kind, message, fields = _told(response)
    said = f"{message or response.reason_phrase} (HTTP {status})"
    if kind == "session_not_found":
        return SessionNotFound(message)
    if kind == "session_conflict" and isinstance(head := fields.get("head"), str):
        return SessionConflict(message, head)
    if kind == "key_conflict":
        return KeyConflict(message)
    if status == 408 or kind == "timeout_error":
        return TimedOut(said)
    if status in (401, 403):
        return Unauthorized(said)
    if status in (429, 529):
        return Busy(said)
    if status == 413:
        return TooLarge(said)
    return EngineUnavailable(said) if status >= 500 or status < 400 else InvalidInput(said)


def _path(session: str) -> str:
    # Dots too: "." and ".." would be taken for parts of the way.
    return "/v1/sessions/" + quote(session, safe="").replace(".", "%2E")


def _post(path: str, body: BaseModel | dict[str, Any], reply: type[BaseModel]) -> Wire:
    written = (
        body.model_dump_json(exclude_none=True) if isinstance(body, BaseModel) else json.dumps(body)
    )
    return Wire("POST", path, written.encode(), {}, _reader(reply))


def _once(wire: Wire) -> Wire:
    """A request that is done once, however often it is sent."""
    return wire._replace(headers={"idempotency-key": uuid.uuid4().hex})


def _reader(kind: type[BaseModel]) -> Callable[[httpx.Response], Any]:
    def read(response: httpx.Response) -> Any:
        try:
            reply = kind.model_validate_json(response.content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise EngineUnavailable(
                f"{response.url} replied with something else than expected: "
                f"{where(first['loc'])}: {first['msg']}."
            ) from error
        if isinstance(reply, SystemOneResponse):
            name = response.headers.get("x-typesafe-request-id", "")
            return reply.model_copy(update={"request_id": name})
        return reply

    return read


def _told(response: httpx.Response) -> tuple[str, str, dict[str, Any]]:
    """The kind of an error, its message, and the rest of its detail."""
    try:
        content = response.json()
    except ValueError:
        return "", response.text[:_SHOWN], {}
    if not isinstance(content, dict):
        return "", str(content)[:_SHOWN], {}
    detail = content.get("detail", content)
    if isinstance(detail, list):
        return "", "; ".join(map(_fault, detail)), {}
    if not isinstance(detail, dict):
        return "", str(detail)[:_SHOWN], {}
    return str(detail.get("error_type", "")), str(detail.get("message", "")), detail


def _fault(fault: Any) -> str:
    if not isinstance(fault, dict):
        return str(fault)[:_SHOWN]
    place = [part for part in fault.get("loc", ()) if part != "body"]
    message = str(fault.get("msg", ""))
    return f"{where(place)}: {message}" if place else message
