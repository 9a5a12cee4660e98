"""An OpenTelemetry span for every request with questions, in OpenInference's names, without text.

Only imported where spans are wanted: OpenTelemetry is optional.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from flide_agent.exceptions import MissingExtra
from flide_agent.session_types import Answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry import trace
    from starlette.requests import Request

    from flide_agent.types import SystemOneResponse

_EXPORTERS = "opentelemetry_traces_exporter"
"""The entry points by which packages offer exporters."""


class Spans:
    """Writes spans.

    Args:
        provider: where they go.
        close: ends it, if it is the server's own.
    """

    def __init__(
        self, provider: trace.TracerProvider, close: Callable[[], object] = lambda: None
    ) -> None:
        self._tracer = provider.get_tracer("flide_agent")
        self.close = close

    @contextmanager
    def decision(self, request: Request) -> Iterator[Callable[[SystemOneResponse], None]]:
        """A span of a request, below its sender's; what it gives is told of the answer."""
        with self._tracer.start_as_current_span(
            "decision",
            extract(request.headers),
            SpanKind.SERVER,
            {"openinference.span.kind": "DECISION", "decision.system": "typesafe"},
            # Words of errors may quote what was sent.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            tenant = request.state.notes.get("tenant", "")
            if tenant:
                span.set_attribute("flide.tenant", tenant)
            try:
                yield lambda response: _describe(span, response, tenant)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                raise


def open_spans(exporter: str) -> Spans:
    """Spans for an exporter that some package offers by this name, set up by OTEL_… variables.

    Raises:
        MissingExtra: no installed package does.
    """
    found = entry_points(group=_EXPORTERS, name=exporter)
    if not found:
        raise MissingExtra(
            f"no installed package exports traces as {exporter!r}: for otlp_proto_http, run "
            "pip install opentelemetry-exporter-otlp-proto-http."
        )
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(found[exporter].load()()))
    return Spans(provider, provider.shutdown)


def _describe(span: trace.Span, response: SystemOneResponse, tenant: str) -> None:
    span.set_attributes(
        {
            "decision.model_name": response.model,
            "decision.response.model_name": response.model,
            "decision.token_count.input": response.usage.input_tokens,
            "decision.token_count.output": response.usage.output_tokens,
        }
    )
    kinds = Counter(answer.type for answer in response.answers.values())
    span.set_attributes({f"flide.questions.{kind}": count for kind, count in kinds.items()})
    if (reuse := response.x_reuse) is not None:
        span.set_attributes(
            {
                "flide.tokens.new": reuse.new_tokens,
                "flide.tokens.reused": reuse.reused_tokens,
                "flide.tokens.source": reuse.source,
            }
        )
    if isinstance(response, Answers):
        span.set_attribute("session.id", _name(tenant, response.session.id))
        if (decision := response.x_decision) is not None:
            span.set_attribute("flide.decision.action", decision.action)


def _name(tenant: str, session: str) -> str:
    """A session's, which tells its spans from others'; its id may be the name of a person."""
    named = f"{len(tenant)}:{tenant}{session}".encode(errors="replace")
    return hashlib.blake2b(named, digest_size=8).hexdigest()
