"""The app: made for a runtime, never imported ready."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from flide_agent._json import quote
from flide_agent.exceptions import FlideError, MissingExtra
from flide_agent.runtime import Runtime
from flide_agent.server import errors, routes, sessions
from flide_agent.server.auth import Auth
from flide_agent.server.desk import Desk
from flide_agent.server.edge import CLOSED, Edge
from flide_agent.server.errors import ApiError, InvalidBody
from flide_agent.server.keys import Keys
from flide_agent.server.linger import Linger
from flide_agent.server.metrics import Metrics
from flide_agent.server.schemas import bodies
from flide_agent.server.settings import Settings
from flide_agent.server.streams import Streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import Request
    from opentelemetry.trace import TracerProvider

    from flide_agent.server.spans import Spans
    from flide_engine.engine import Engine

_KINDS = {404: "not_found", 405: "method_not_allowed"}


def create_app(
    serving: Runtime | Engine,
    settings: Settings | None = None,
    *,
    tracer_provider: TracerProvider | None = None,
) -> FastAPI:
    """An app that serves System One and sessions.

    Args:
        serving: a runtime, or an engine, for which one is made. Whoever made it closes it.
        settings: by default those of the environment.
        tracer_provider: where spans go, in place of `settings.traces`; the caller shuts it down.

    Raises:
        InvalidInput: the file of keys cannot be read, or that of the audit cannot be opened.
        MissingExtra: spans are wanted, and OpenTelemetry or the exporter is not installed.
    """
    settings = settings or Settings()
    runtime = serving if isinstance(serving, Runtime) else Runtime(serving)
    limits = settings.limits
    auth = Auth(Keys(settings.keys, limits) if settings.keys else None, limits)
    runtime.limit(
        sessions=lambda tenant: auth.limits_of(tenant).sessions,
        tokens=lambda tenant: auth.limits_of(tenant).tokens,
    )
    spans = _spans(settings, tracer_provider)
    desk = Desk(runtime, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()
        if spans is not None:
            spans.close()
        if runtime is not serving:
            runtime.close()

    app = _App(
        title="flide-agent",
        summary="Typed questions about a state or a session, answered by a decision model.",
        version=version("flide-agent"),
        lifespan=lifespan,
        redoc_url=None,
    )
    app.state.desk = desk
    app.state.auth = auth
    app.state.metrics = metrics = Metrics(runtime, desk.admission)
    app.state.spans = spans
    app.state.streams = Streams()
    app.state.since = routes.today()
    app.include_router(routes.router)
    app.include_router(sessions.router)
    app.add_middleware(Linger)
    app.add_middleware(Edge, metrics=metrics)
    _handle_errors(app)
    return app


def _spans(settings: Settings, provider: TracerProvider | None) -> Spans | None:
    if provider is None and settings.traces is None:
        return None
    try:
        from flide_agent.server.spans import Spans, open_spans
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"spans are wanted, and {error.name} is not installed: run pip install "
            "'flide-agent[otel]'."
        ) from error
    if provider is not None:
        return Spans(provider)
    assert settings.traces is not None
    return open_spans(settings.traces)


class _App(FastAPI):
    """Its document has the bodies that the routes read by themselves."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        document["components"]["schemas"] |= bodies(self.state.desk.runtime.model_name)
        if self.state.auth.is_open:
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation.pop("security", None)
        return document


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> Response:
        return errors.reply(error)

    @app.exception_handler(FlideError)
    async def failed(request: Request, error: FlideError) -> Response:
        return errors.reply(errors.of(error))

    @app.exception_handler(RequestValidationError)
    async def misread(request: Request, error: RequestValidationError) -> Response:
        """Paths and queries: bodies are read by the routes."""
        faults: list[dict[str, Any]] = [
            {"loc": list(each["loc"]), "msg": each["msg"], "type": each["type"]}
            for each in error.errors()
        ]
        return errors.reply(InvalidBody(faults))

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> Response:
        status, where = error.status_code, request.scope["path"]
        kind = _KINDS.get(status, "api_usage_error")
        headers = {name.lower(): value for name, value in (error.headers or {}).items()}
        if status == 405:
            # Starlette names the methods of the first route of a path only.
            known = app.openapi()["paths"].get(request.scope["route"].path_format, {})
            headers["allow"] = ", ".join(sorted(map(str.upper, known)))
        message = f"{request.method} {quote(where)}: {error.detail}."
        return errors.reply(ApiError(status, kind, message, headers=headers))

    @app.exception_handler(ClientDisconnect)
    async def unheard(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=CLOSED)
