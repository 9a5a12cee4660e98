"""What can be asked without a session, and how the server is."""

import time
from concurrent.futures import Future
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers

from flide_agent.history import ROOT
from flide_agent.parsing import parse_request
from flide_agent.server import documents
from flide_agent.server.auth import AnyCaller
from flide_agent.server.body import Packed
from flide_agent.server.desk import Desk
from flide_agent.server.keys import Caller
from flide_agent.server.replies import (
    KEY_HEADER,
    answered,
    check_model,
    check_questions,
    session_id,
)
from flide_agent.session_types import AskRequest

SESSION_HEADER = "x-session-id"

router = APIRouter()


@router.post("/v1/systemone", **documents.SYSTEM_ONE)
async def system_one(request: Request, caller: AnyCaller) -> Response:
    """Answer typed questions about a state.

    With a session's id, the state is read into that session: what it has in common with what is
    held there is not computed again. The answers are the same.
    """
    desk: Desk = request.app.state.desk
    headers = request.headers

    def work(packed: Packed, seconds: float) -> Future[Any]:
        return _ask(desk, caller, packed.parse(), headers, seconds)

    return await answered(request, caller, work)


def _ask(
    desk: Desk, caller: Caller, content: dict[str, Any], headers: Headers, seconds: float
) -> Future[Any]:
    asked = parse_request(content)
    check_model(desk.runtime, asked.model)
    check_questions(asked.questions, caller.limits)
    named = content.get("session_id")
    if named is None and (header := headers.get(SESSION_HEADER)) is not None:
        named = header.encode("latin-1").decode(errors="replace")
    if named is None:
        return desk.runtime.system_one(asked, tenant=caller.tenant, timeout=seconds)
    messages = asked.state if isinstance(asked.state, list) else [asked.state]
    step = AskRequest(
        parent=ROOT,
        messages=messages,
        whole=True,
        questions=asked.questions,
        key=headers.get(KEY_HEADER),
    )
    name = session_id(named, "session_id")
    return desk.runtime.ask(caller.tenant, name, step, timeout=seconds)


@router.get("/v1/models", **documents.MODELS)
async def models(request: Request, caller: AnyCaller) -> JSONResponse:
    """The models that answer here."""
    desk: Desk = request.app.state.desk
    name, since = desk.runtime.model_name, request.app.state.since
    known = {name: "The model that this server runs.", "jev-latest": f"Another name of {name}."}
    return JSONResponse(
        {
            "models": [
                {"name": each, "description": what, "release_date": since}
                for each, what in known.items()
            ]
        }
    )


@router.get("/health", **documents.HEALTH)
async def health(request: Request) -> JSONResponse:
    """Whether the engine answers: 200, or 503 once it is broken."""
    desk: Desk = request.app.state.desk
    if desk.runtime.engine.health.alive:
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "dead"}, 503)


@router.get("/metrics", **documents.METRICS)
async def metrics(request: Request, caller: AnyCaller) -> Response:
    """Figures for Prometheus."""
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4")


def today() -> str:
    """The date, as the list of models has it."""
    return time.strftime("%Y-%m-%d", time.gmtime())
