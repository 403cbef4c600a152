"""Spans of calls with OpenTelemetry. It is loaded only where tracing is asked for.

Needs the extra `klamm[tracing]`. Spans go to the process's tracer provider: an application's is its own business, a
server's is made by `klamm_server.runtime.tracing`. A call's context travels in gRPC's metadata as W3C `traceparent`,
and the server's span is a child of the caller's. A record's context travels in a header of that name
(`klamm.producer.tracing_interceptor`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from klamm.errors import ConfigError
from klamm.version import __version__

_NO_SPAN: Final = nullcontext()


class _Process:
    tracer: Any = None
    """Makes this process's own spans; None: it makes none."""


def turn_on() -> None:
    """`span` makes spans from here on. Raises ConfigError without OpenTelemetry."""
    _Process.tracer = opentelemetry().trace.get_tracer("klamm", __version__)


def is_on() -> bool:
    """Whether `span` makes spans."""
    return _Process.tracer is not None


def span(name: str) -> AbstractContextManager[Any]:
    """A span around a block, a child of the current one; none where that is none, or is not sampled."""
    if _Process.tracer is None or not opentelemetry().trace.get_current_span().is_recording():
        return _NO_SPAN
    started: AbstractContextManager[Any] = _Process.tracer.start_as_current_span(name)
    return started


def request_span(name: str, client_id: str) -> AbstractContextManager[Any]:
    """A span for a request that brings no context along: a trace of its own, if the sampler wants it. Call `turn_on`
    before."""
    kind = opentelemetry().trace.SpanKind.SERVER
    attributes = {"messaging.system": "kafka", "messaging.client.id": client_id}
    started: AbstractContextManager[Any] = _Process.tracer.start_as_current_span(name, kind=kind, attributes=attributes)
    return started


def inject(carrier: dict[str, str]) -> None:
    """Puts the current context there, under W3C's names. Raises ConfigError without OpenTelemetry."""
    opentelemetry().propagate.inject(carrier)


def opentelemetry() -> Any:
    """The library, loaded here. Raises ConfigError where it is not installed."""
    try:
        import opentelemetry.instrumentation.grpc
        import opentelemetry.propagate
        import opentelemetry.trace
    except ImportError as error:
        raise ConfigError("tracing.enable: OpenTelemetry is not installed, expected klamm[tracing]") from error
    return opentelemetry
