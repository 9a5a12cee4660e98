"""What a Prometheus server may ask for. No label names a tenant, a session or a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flide_agent.runtime import Runtime
    from flide_agent.server.admission import Admission
    from flide_agent.types import SystemOneResponse

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """Counts of one server.

    Args:
        runtime, admission: are asked for their figures when these are wanted.
    """

    def __init__(self, runtime: Runtime, admission: Admission) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "flide_requests", "Requests.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "flide_request_seconds",
            "From the first byte of a request to the last of its reply.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter(
            "flide_tokens",
            "Tokens of answered requests: computed, or taken from a checkpoint.",
            ["kind"],
            registry=self._registry,
        )
        self._registry.register(_Gauges(runtime, admission))

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def count_tokens(self, response: SystemOneResponse) -> None:
        """Count what answers took."""
        if (reuse := response.x_reuse) is not None:
            self._tokens.labels("new").inc(reuse.new_tokens)
            self._tokens.labels("reused").inc(reuse.reused_tokens)

    def text(self) -> bytes:
        """All of them in Prometheus' format."""
        return generate_latest(self._registry)


class _Gauges:
    """How things stand at the moment."""

    def __init__(self, runtime: Runtime, admission: Admission) -> None:
        self._runtime = runtime
        self._admission = admission

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Ask for the figures."""
        health = self._runtime.engine.health
        yield GaugeMetricFamily(
            "flide_engine_alive", "Whether the engine answers.", value=health.alive
        )
        yield GaugeMetricFamily(
            "flide_engine_waiting", "Requests that wait for a round.", value=health.waiting
        )
        yield GaugeMetricFamily(
            "flide_engine_running", "Requests in a round.", value=health.running
        )
        yield GaugeMetricFamily(
            "flide_engine_waiting_tokens",
            "What the waiting ones have left to compute.",
            value=health.waiting_tokens,
        )
        yield GaugeMetricFamily(
            "flide_requests_in_hand",
            "Requests that were let in and are not answered.",
            value=self._admission.in_hand,
        )
        yield GaugeMetricFamily(
            "flide_watches", "Streams of standing answers.", value=self._admission.watching
        )
        yield GaugeMetricFamily(
            "flide_sessions", "Sessions that are held.", value=self._runtime.sessions
        )
