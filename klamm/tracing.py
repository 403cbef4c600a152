"""Spans of calls with OpenTelemetry. It is loaded only where tracing is asked for.

This needs the extra `klamm[tracing]`. Spans go to the process's tracer provider. An application sets up its own, and
`klamm_server.runtime.tracing` sets up that of a server. gRPC's metadata carry a call's context as W3C `traceparent`,
and the server's span is a child of the caller's. A header of that name carries a record's context
(`klamm.producer.tracing_interceptor`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from klamm.errors import ConfigError
from klamm.version import __version__

_NO_SPAN: Final = nullcontext()


class _Process:
    tracer: Any = None
    """The tracer of this process's own spans, or None if tracing is off."""


def turn_on() -> None:
    """Turns tracing on, so that `span` makes spans. Raises ConfigError without OpenTelemetry."""
    _Process.tracer = opentelemetry().trace.get_tracer("klamm", __version__)


def is_on() -> bool:
    """Returns whether `span` makes spans."""
    return _Process.tracer is not None


def span(name: str) -> AbstractContextManager[Any]:
    """Returns a span around a block, as a child of the current span. Makes none if there is no current span, or if it
    is not sampled."""
    if _Process.tracer is None or not opentelemetry().trace.get_current_span().is_recording():
        return _NO_SPAN
    started: AbstractContextManager[Any] = _Process.tracer.start_as_current_span(name)
    return started


def request_span(name: str, client_id: str) -> AbstractContextManager[Any]:
    """Returns the span of a request without a context. It begins a new trace if the sampler selects it. Call `turn_on`
    before."""
    kind = opentelemetry().trace.SpanKind.SERVER
    attributes = {"messaging.system": "kafka", "messaging.client.id": client_id}
    started: AbstractContextManager[Any] = _Process.tracer.start_as_current_span(name, kind=kind, attributes=attributes)
    return started


def inject(carrier: dict[str, str]) -> None:
    """Writes the current context to `carrier`, under W3C's names. Raises ConfigError without OpenTelemetry."""
    opentelemetry().propagate.inject(carrier)


def opentelemetry() -> Any:
    """Imports and returns the OpenTelemetry library. Raises ConfigError if it is not installed."""
    try:
        import opentelemetry.instrumentation.grpc
        import opentelemetry.propagate
        import opentelemetry.trace
    except ImportError as error:
        raise ConfigError("tracing.enable: OpenTelemetry is not installed, expected klamm[tracing]") from error
    return opentelemetry
