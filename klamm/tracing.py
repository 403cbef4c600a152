"""Spans of calls with OpenTelemetry, for who asks for them; for nobody else is it loaded.

Needs the extra `klamm[tracing]`. Spans go to the process's tracer provider: an application's is its own business, a
server's is made by `klamm_server.tracing`. A call's context travels in gRPC's metadata as W3C `traceparent`, and the
server's span is a child of the caller's; a record's in a header of that name (`klamm.producer.tracing_interceptor`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from grpc import aio

from klamm.errors import ConfigError
from klamm.version import __version__
from klamm.wire.service import ADMIN, BROKER, CONTROLLER, COORDINATOR, methods

_NO_SPAN: Final = nullcontext()


class _Process:
    tracer: Any = None
    """Of this process's own spans; None: it makes none."""


def turn_on() -> None:
    """`span` makes spans from here on. Raises ConfigError without OpenTelemetry."""
    _Process.tracer = _opentelemetry().trace.get_tracer("klamm", __version__)


def is_on() -> bool:
    """Whether `span` makes spans."""
    return _Process.tracer is not None


def span(name: str) -> AbstractContextManager[Any]:
    """A span around a block, a child of the current one; none where that is none, or is not sampled."""
    if _Process.tracer is None or not _opentelemetry().trace.get_current_span().is_recording():
        return _NO_SPAN
    started: AbstractContextManager[Any] = _Process.tracer.start_as_current_span(name)
    return started


def request_span(name: str, client_id: str) -> AbstractContextManager[Any]:
    """Of a request that brings no context along: a trace of its own, if the sampler wants it. `turn_on` came before."""
    kind = _opentelemetry().trace.SpanKind.SERVER
    attributes = {"messaging.system": "kafka", "messaging.client.id": client_id}
    started: AbstractContextManager[Any] = _Process.tracer.start_as_current_span(name, kind=kind, attributes=attributes)
    return started


def client_interceptors() -> list[Any]:
    """For a channel: its calls are spans, where `has_span`. Raises ConfigError without OpenTelemetry."""
    interceptors = _opentelemetry().instrumentation.grpc.aio_client_interceptors(filter_=has_span())
    return [one for one in interceptors if isinstance(one, aio.UnaryUnaryClientInterceptor)]


def has_span() -> Callable[[Any], bool]:
    """Whether a call's details are those of one to be seen: no stream, which lasts as long as its connection, and no
    heartbeat, which would be most of what is seen."""
    paths = {
        method.path
        for service in (ADMIN, BROKER, CONTROLLER, COORDINATOR)
        for method in methods(service)
        if not (method.client_streaming or method.server_streaming or method.name.endswith("heartbeat"))
    }
    both = paths | {path.encode() for path in paths}  # gRPC gives one to interceptors of clients, the other of servers
    return lambda details: details.method in both


def inject(carrier: dict[str, str]) -> None:
    """Puts the current context there, under W3C's names. Raises ConfigError without OpenTelemetry."""
    _opentelemetry().propagate.inject(carrier)


def _opentelemetry() -> Any:
    try:
        import opentelemetry.instrumentation.grpc
        import opentelemetry.propagate
        import opentelemetry.trace
    except ImportError as error:
        raise ConfigError("tracing.enable: OpenTelemetry is not installed, expected klamm[tracing]") from error
    return opentelemetry
