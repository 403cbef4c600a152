"""A server's traces (`tracing.enable`): what of OpenTelemetry an application would set up for itself.

OpenTelemetry's own variables set the destination and the sampling of spans: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_TRACES_SAMPLER and others (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/)."""

from __future__ import annotations

from typing import Any

from klamm import tracing
from klamm.rpc import tracing_interceptors


def start(name: str, node_id: int) -> None:
    """Exports the spans of this process over OTLP until it ends. A thread of its own sends them from a bounded queue.
    Spans are dropped while the queue is full. Raises ConfigError without OpenTelemetry."""
    tracing.turn_on()
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": name, "service.instance.id": str(node_id)})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def server_interceptors() -> list[Any]:
    """Returns the interceptors that trace this server's calls."""
    if not tracing.is_on():
        return []
    from opentelemetry.instrumentation.grpc import aio_server_interceptor

    return [aio_server_interceptor(filter_=tracing_interceptors.has_span())]
