"""What a server tells about its requests: spans and the audit, and in neither any text."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from flide_agent import Client, InvalidInput, MissingExtra, Noul, Policy, Rule, TimedOut
from flide_agent.server import Settings, create_app
from tests.server.conftest import ASKED, body, serving
from tests.server.test_serve import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flide_engine.engine import Engine
    from tests.server.conftest import Served

SECRET = "nobody may read this"
STATE = f"{SECRET}. " * 12
POLICY = Policy(
    rules=[Rule("any", Noul(instructions=SECRET), block=1e-9, tools=["run"])], timeout=20
)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Keeps spans."""
    return InMemorySpanExporter()


@pytest.fixture
def traced(
    engine: Engine, exporter: InMemorySpanExporter, keys: Callable[..., Path]
) -> Iterator[Served]:
    """A server with spans and a key."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = Settings(timeout=30, keys=keys(right="acme"))
    with serving(engine, settings, key="right", tracer_provider=provider) as served:
        yield served


def test_a_span(traced: Served, exporter: InMemorySpanExporter) -> None:
    """One a request with questions: model, tokens, reused ones, kinds; below its sender's span."""
    sent = [body(STATE), body([STATE, "More."], session_id=SECRET)]
    first, second = (
        traced.http.post("/v1/systemone", json=each, headers={"traceparent": PARENT}).json()
        for each in sent
    )
    traced.http.get("/v1/models")

    spans = exporter.get_finished_spans()
    told: list[dict[str, Any]] = [dict(span.attributes or {}) for span in spans]
    assert [span.name for span in spans] == ["decision"] * 2
    for span, attributes, answered in zip(spans, told, (first, second), strict=True):
        assert span.parent is not None
        assert f"{span.parent.trace_id:032x}" == PARENT.split("-")[1]
        assert span.status.status_code is StatusCode.UNSET
        assert attributes["openinference.span.kind"] == "DECISION"
        assert attributes["decision.response.model_name"] == "tiny"
        assert attributes["decision.token_count.input"] == answered["usage"]["input_tokens"]
        assert attributes["decision.token_count.output"] == answered["usage"]["output_tokens"]
        assert attributes["flide.tokens.reused"] == answered["x_reuse"]["reused_tokens"]
        assert attributes["flide.tokens.new"] == answered["x_reuse"]["new_tokens"]
        kinds = [attributes[f"flide.questions.{kind}"] for kind in ("noul", "choice", "score")]
        assert kinds == [1, 1, 1]
        assert attributes["flide.tenant"] == "acme"
    assert told[1]["flide.tokens.reused"] > 0
    assert "session.id" not in told[0]
    assert told[1]["session.id"]
    assert SECRET not in "".join(span.to_json() for span in spans)


def test_a_span_of_a_failure(traced: Served, exporter: InMemorySpanExporter) -> None:
    """The kind of the error, and not its words; of strangers there is none."""
    traced.http.post("/v1/systemone", json=body(questions={SECRET: {"type": SECRET}}))
    traced.http.post("/v1/systemone", json=body(), headers={"authorization": "Bearer wrong"})
    with Client(traced.url, api_key="right") as client, pytest.raises(TimedOut):
        client.session().ask(ASKED, messages=[STATE], timeout=1e-4)

    spans = exporter.get_finished_spans()
    kinds = [dict(span.attributes or {})["error.type"] for span in spans]
    assert kinds == ["InvalidInput", "TimedOut"]
    assert all(span.status.status_code is StatusCode.ERROR for span in spans)
    assert not any(span.events for span in spans)
    assert SECRET not in "".join(span.to_json() for span in spans)


def test_a_span_of_a_decision(traced: Served, exporter: InMemorySpanExporter) -> None:
    """Says what was decided."""
    with Client(traced.url, api_key="right") as client:
        client.session().decide(POLICY, state={"tool": "run"})
    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes or {})["flide.decision.action"] == "block"


def test_exported(directory: Path) -> None:
    """A server of its own sends them to the exporter that is named, the last ones at its end."""
    with Process("--model", directory, FLIDE_TRACES="console") as served:
        with Client(served.url) as client:
            client.system_one(STATE, ASKED)
        status, said = served.end()
    assert status == 0, said
    assert '"decision.token_count.input"' in served.rest
    assert SECRET not in served.rest + said


def test_without_what_it_needs(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said at the start, with the command that helps."""
    with pytest.raises(MissingExtra, match="pip install opentelemetry-exporter"):
        create_app(engine, Settings(traces="nowhere"))
    monkeypatch.delitem(sys.modules, "flide_agent.server.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtra, match=r"flide-agent\[otel\]"):
        create_app(engine, Settings(traces="console"))
    create_app(engine, Settings())


def test_the_audit(engine: Engine, keys: Callable[..., Path], tmp_path: Path) -> None:
    """A line for every decision, whoever asked and however they heard of it; no text in it."""
    path = tmp_path / "audit.jsonl"
    settings = Settings(timeout=30, keys=keys(right="acme"), audit=path)
    with (
        serving(engine, settings, key="right") as served,
        Client(served.url, api_key="right") as client,
    ):
        session = client.session("seen")
        made = [
            session.decide(POLICY, messages=[STATE], state={"tool": "run", "x": SECRET}, key="k"),
            session.decide(POLICY, messages=[STATE], state={"tool": "run", "x": SECRET}, key="k"),
            session.decide(POLICY, state={"tool": "read"}),
        ]
        session.ask(ASKED)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["id"], line["action"], line["replayed"]) for line in lines] == [
        (decision.id, decision.action, decision.replayed) for decision in made
    ]
    assert lines[0]["tenant"] == "acme"
    assert lines[0]["session"] == "seen"
    assert lines[0]["new_tokens"] > 0
    assert lines[0]["ms"] > 0
    assert SECRET not in path.read_text()
    with pytest.raises(InvalidInput, match="cannot be opened"):
        create_app(engine, Settings(audit=tmp_path / "no" / "folder"))
