"""Sessions over HTTP: create, append, ask, fork, rewind, describe, drop, watch."""

import uuid
from concurrent.futures import Future
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, Response

from flide_agent.history import ROOT
from flide_agent.server import documents
from flide_agent.server.auth import AnyCaller
from flide_agent.server.body import Packed
from flide_agent.server.desk import Desk, Work
from flide_agent.server.errors import fault
from flide_agent.server.forms import CreateRequest, ForkRequest, RewindRequest
from flide_agent.server.keys import Caller
from flide_agent.server.replies import (
    ID_LENGTH,
    KEY_HEADER,
    answered,
    check_model,
    check_questions,
    read_as,
    session_id,
    written,
)
from flide_agent.server.streams import AnswerStream
from flide_agent.session_types import AppendRequest, AskRequest

router = APIRouter(prefix="/v1/sessions")

_LENGTHS = {"minLength": 1, "maxLength": ID_LENGTH}


async def _named(
    session: Annotated[
        str, Path(description="The session's id, percent-encoded.", json_schema_extra=_LENGTHS)
    ],
) -> str:
    # Paths are routed as they came, so that an id may hold a slash.
    try:
        return session_id(unquote(session, errors="strict"), "session", where="path")
    except UnicodeDecodeError:
        raise fault("a session's id is UTF-8, percent-encoded.", "session", where="path") from None


SessionId = Annotated[str, Depends(_named)]
"""An endpoint's argument: the session in its path."""


@router.post("", **documents.CREATE)
async def create(request: Request, caller: AnyCaller) -> Response:
    """Begin a session, or go on with the one of that id; what it holds already is not lost."""
    runtime = _desk(request).runtime

    def work(packed: Packed, seconds: float) -> Any:
        form = read_as(CreateRequest, packed.parse())
        name = uuid.uuid4().hex if form.id is None else session_id(form.id, "id")
        step = AppendRequest(parent=ROOT, messages=form.messages, ttl=form.ttl)
        return runtime.append(caller.tenant, name, step)

    return written(await _once(request, caller, "create", "", work))


@router.post("/{session}/append", **documents.APPEND)
async def append(request: Request, caller: AnyCaller, session: SessionId) -> Response:
    """Add what happened. The same after the same parent is one thing, however often it is sent."""
    runtime = _desk(request).runtime

    def work(packed: Packed, seconds: float) -> Any:
        return runtime.append(caller.tenant, session, read_as(AppendRequest, packed.parse()))

    return written(await _once(request, caller, "append", session, work))


@router.post("/{session}/systemone", **documents.ASK)
async def ask(request: Request, caller: AnyCaller, session: SessionId) -> Response:
    """Ask about the history, after adding what happened: System One's answers, or a decision."""
    desk = _desk(request)

    def work(packed: Packed, seconds: float) -> Future[Any]:
        asked = _asked(packed.parse(), desk, caller)
        return desk.runtime.ask(caller.tenant, session, asked, timeout=seconds)

    return await answered(request, caller, work)


@router.post("/{session}/fork", **documents.FORK)
async def fork(request: Request, caller: AnyCaller, session: SessionId) -> Response:
    """Another session with the history at a head; nothing is computed or copied."""
    runtime = _desk(request).runtime

    def work(packed: Packed, seconds: float) -> Any:
        return runtime.fork(caller.tenant, session, read_as(ForkRequest, packed.parse()).at)

    return written(await _once(request, caller, "fork", session, work))


@router.post("/{session}/rewind", **documents.REWIND)
async def rewind(request: Request, caller: AnyCaller, session: SessionId) -> Response:
    """Make an earlier head the newest."""
    runtime = _desk(request).runtime

    def work(packed: Packed, seconds: float) -> Any:
        return runtime.rewind(caller.tenant, session, read_as(RewindRequest, packed.parse()).to)

    return written(await _once(request, caller, "rewind", session, work))


@router.post("/{session}/watch", **documents.WATCH)
async def watch(request: Request, caller: AnyCaller, session: SessionId) -> Response:
    """Ask the same at every append from now on.

    The answers come as server-sent events; asking the same is a look-up as long as they do.
    """
    desk = _desk(request)
    stream = AnswerStream(desk, caller, session)

    def work(packed: Packed, seconds: float) -> None:
        asked = _asked(packed.parse(), desk, caller)
        for name in ("messages", "state", "since", "key", "parent", "expected"):
            if getattr(asked, name):
                raise fault("standing questions have none: leave it out.", name)
        stream.register(asked)

    try:
        await desk.serve(request, caller, work)
    except BaseException:
        stream.close()
        raise
    return stream.response(request.app.state.streams)


@router.get("/{session}", **documents.DESCRIBE)
async def describe(
    request: Request,
    caller: AnyCaller,
    session: SessionId,
    at: Annotated[str | None, Query(description="A head; by default the newest.")] = None,
    turns: Annotated[bool, Query(description="Whether the texts are wanted.")] = False,
) -> Response:
    """Where a session stands."""
    desk = _desk(request)
    with desk.admission.enter(caller):
        return written(
            await desk.off_loop(
                lambda: desk.runtime.describe(caller.tenant, session, at=at, turns=turns)
            )
        )


@router.delete("/{session}", **documents.DROP)
async def drop(request: Request, caller: AnyCaller, session: SessionId) -> JSONResponse:
    """Forget a session; says whether it was held."""
    runtime = _desk(request).runtime
    return JSONResponse({"id": session, "dropped": runtime.drop(caller.tenant, session)})


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


async def _once(request: Request, caller: Caller, verb: str, session: str, work: Work) -> Any:
    """Do it, or give the reply to the request that this one repeats."""
    desk = _desk(request)
    key = request.headers.get(KEY_HEADER)

    def unrepeated(packed: Packed, seconds: float) -> Any:
        if key is None:
            return work(packed, seconds)
        parts = (key, caller.tenant, verb, session)
        return desk.repeats.once(parts, packed.data, lambda: work(packed, seconds))

    return await desk.serve(request, caller, unrepeated)


def _asked(content: dict[str, Any], desk: Desk, caller: Caller) -> AskRequest:
    asked = read_as(AskRequest, content)
    if (model := content.get("model")) is not None:
        check_model(desk.runtime, model)
    check_questions(asked.policy.rules if asked.policy else asked.questions or (), caller.limits)
    return asked
