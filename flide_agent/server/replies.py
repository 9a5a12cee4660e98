"""What the routes have in common: checks of what was sent, and replies."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi.responses import Response
from pydantic import BaseModel, ValidationError

from flide_agent._json import describe, json_fault
from flide_agent.server.errors import ApiError, InvalidBody, fault, faults_of
from flide_agent.session_types import Answers

if TYPE_CHECKING:
    from collections.abc import Sized

    from fastapi import Request

    from flide_agent.runtime import Runtime
    from flide_agent.server.desk import Desk, Work
    from flide_agent.server.keys import Caller
    from flide_agent.server.settings import Limits
    from flide_agent.types import SystemOneResponse

ALIAS = "jev-latest"
"""The model that System One's clients ask for by default; here, the only one there is."""

ID_LENGTH = 256

KEY_HEADER = "idempotency-key"
"""A request that comes again with the same one is done once."""

M = TypeVar("M", bound=BaseModel)


def check_model(runtime: Runtime, name: object) -> None:
    """Refuse a model that is not served.

    Raises:
        ApiError: there is no such model.
    """
    if name not in (ALIAS, runtime.model_name):
        raise ApiError(
            404,
            "model_not_found",
            f"{describe(name)} was asked for, but this server runs {runtime.model_name!r}: name "
            f'that, or "{ALIAS}".',
        )


def check_questions(questions: Sized, limits: Limits) -> None:
    """Refuse more questions than a request may have.

    Raises:
        ApiError: there are too many.
    """
    if len(questions) > limits.questions:
        raise fault(
            f"{len(questions)} questions were asked, but a request may have {limits.questions}: "
            "send several.",
            "questions",
            kind="too_many_questions",
        )


def session_id(value: object, *place: str, where: str = "body") -> str:
    """A session's id as a client names it.

    Raises:
        ApiError: it cannot be one.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= ID_LENGTH or json_fault(value):
        raise fault(
            f"{describe(value)} was given, but a session's id is a text of 1 to {ID_LENGTH} "
            "characters.",
            *place,
            where=where,
        )
    return value


def read_as(kind: type[M], content: dict[str, Any]) -> M:
    """Read a body.

    Raises:
        ApiError: it breaks a rule.
    """
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InvalidBody(faults_of(error)) from None


def written(model: BaseModel) -> Response:
    """A reply."""
    return Response(model.model_dump_json(), media_type="application/json")


async def answered(request: Request, caller: Caller, work: Work) -> Response:
    """A reply with answers; what they took is counted, and what was decided is written down."""
    desk: Desk = request.app.state.desk
    spans = request.app.state.spans
    began = time.perf_counter()
    with nullcontext(None) if spans is None else spans.decision(request) as tell:
        response: SystemOneResponse = await desk.serve(request, caller, work)
        if tell is not None:
            tell(response)
    if isinstance(response, Answers):
        desk.write_down(caller, response, 1e3 * (time.perf_counter() - began))
    request.app.state.metrics.count_tokens(response)
    if (reuse := response.x_reuse) is not None:
        request.state.notes |= {
            "new_tokens": reuse.new_tokens,
            "reused_tokens": reuse.reused_tokens,
        }
    return written(response)
