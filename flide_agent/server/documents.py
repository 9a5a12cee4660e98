"""What the OpenAPI document says about each route."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from flide_agent.history import ROOT
from flide_agent.server.schemas import ref
from flide_agent.session_types import Answers, SessionDescription, SessionInfo
from flide_agent.types import SystemOneResponse


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    loc: list[str | int]
    msg: str
    type: str


class Faults(BaseModel):
    """All that is wrong with a request."""

    detail: list[Fault]


class Problem(BaseModel):
    """Why there is no answer."""

    error_type: str
    message: str
    head: str | None = None


class Refusal(BaseModel):
    """Why there is no answer."""

    detail: Problem


class Model(BaseModel):
    """A model that answers here."""

    name: str
    description: str
    release_date: str


class Models(BaseModel):
    """The models that answer here."""

    models: list[Model]


class Health(BaseModel):
    """Whether the engine answers."""

    status: str


class Dropped(BaseModel):
    """Whether a session was held until now."""

    id: str
    dropped: bool


_REFUSALS = {
    401: "The API key is missing or not known.",
    404: "There is no such model, session or head.",
    408: "The time to send the request was over.",
    409: "Somebody else appended first, or the key was used for something else.",
    413: "The body or the context is too large.",
    415: "The body is of a kind that is not read.",
    429: "The tenant has too much in hand; `retry-after-ms` says when to try again.",
    503: "The engine is broken.",
    529: "The server has too much in hand, or time was over.",
}

_QUESTIONS = {
    "refund": {"type": "noul", "instructions": "Does the customer want money back?"},
    "team": {"type": "choice", "criteria": {"billing": "payments", "technical": None}},
    "anger": {"type": "score", "criteria": ["calm", "annoyed", "furious"]},
}
_MESSAGES = [{"role": "user", "content": "My invoice was charged twice."}]
_EXAMPLES: dict[str, Any] = {
    "SystemOneRequest": {
        "model": "jev-latest",
        "state": "My invoice was charged twice.",
        "questions": _QUESTIONS,
    },
    "CreateRequest": {"id": "thread-7", "messages": _MESSAGES},
    "AppendRequest": {"messages": _MESSAGES},
    "AskRequest": {"messages": _MESSAGES, "questions": _QUESTIONS},
    "ForkRequest": {},
    "RewindRequest": {"to": ROOT},
    "WatchRequest": {"questions": _QUESTIONS},
}
_REQUEST_ID = {
    "x-typesafe-request-id": {"description": "Names the request.", "schema": {"type": "string"}}
}


def _route(reply: type[BaseModel], *statuses: int, body: str = "") -> dict[str, Any]:
    """What a route's decorator takes: what it replies, how it refuses, and what it reads."""
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"model": Refusal, "description": _REFUSALS[status]}
        for status in (*statuses, *((413, 415, 529) if body else ()))
    }
    faults: dict[int | str, dict[str, Any]] = {
        422: {"model": Faults, "description": "Something in the request breaks a rule."}
    }
    replies: dict[int | str, dict[str, Any]] = {200: {"model": reply}, **refusals}
    if body or 404 in statuses:
        replies |= faults
    for each in replies.values():
        each["headers"] = _REQUEST_ID
    route: dict[str, Any] = {"response_class": JSONResponse, "responses": replies}
    if body:
        content = {"schema": ref(body), "example": _EXAMPLES[body]}
        route["openapi_extra"] = {
            "requestBody": {"required": True, "content": {"application/json": content}}
        }
    return route


SYSTEM_ONE = _route(SystemOneResponse, 401, 404, 409, 429, 503, body="SystemOneRequest")
MODELS = _route(Models, 401)
HEALTH = _route(Health, 503)
CREATE = _route(SessionInfo, 401, 429, 503, body="CreateRequest")
APPEND = _route(SessionInfo, 401, 404, 409, 429, 503, body="AppendRequest")
ASK = _route(Answers, 401, 404, 409, 429, 503, body="AskRequest")
FORK = _route(SessionDescription, 401, 404, 429, 503, body="ForkRequest")
REWIND = _route(SessionDescription, 401, 404, 429, 503, body="RewindRequest")
DESCRIBE = _route(SessionDescription, 401, 404, 429, 529)
DROP = _route(Dropped, 401, 404)
WATCH = _route(Answers, 401, 404, 429, 503, body="WatchRequest")
WATCH["responses"][200] = {
    "description": "Events: `ready`, then `answers` with a reply each.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
    "headers": _REQUEST_ID,
}
METRICS = _route(Health, 401)
METRICS["responses"][200] = {
    "description": "Figures in Prometheus' format.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
    "headers": _REQUEST_ID,
}
