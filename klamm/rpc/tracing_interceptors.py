"""gRPC's calls as spans of OpenTelemetry (klamm/tracing.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpc import aio

from klamm.tracing import opentelemetry
from klamm.wire.v1.broker_rpc import BROKER
from klamm.wire.v1.controller_rpc import ADMIN, CONTROLLER
from klamm.wire.v1.coordinator_rpc import COORDINATOR


def client_interceptors() -> list[Any]:
    """Returns a channel's interceptors, which make spans of the calls that `has_span` selects. Raises ConfigError
    without OpenTelemetry."""
    interceptors = opentelemetry().instrumentation.grpc.aio_client_interceptors(filter_=has_span())
    return [interceptor for interceptor in interceptors if isinstance(interceptor, aio.UnaryUnaryClientInterceptor)]


def has_span() -> Callable[[Any], bool]:
    """Returns a function that tells whether a call gets a span. Streams get none, because they last as long as their
    connection. Heartbeats get none, because most spans would be heartbeats."""
    paths = {
        method.path
        for service in (ADMIN, BROKER, CONTROLLER, COORDINATOR)
        for method in service.methods
        if not (method.client_streaming or method.server_streaming or method.name.endswith("heartbeat"))
    }
    # gRPC passes the path as text or as bytes, depending on whether the interceptor is a client's or a server's
    both = paths | {path.encode() for path in paths}
    return lambda details: details.method in both
