"""Calls RPCs as any gRPC client does. A failed call raises gRPC's own error, with the status that was sent."""

from __future__ import annotations

from typing import Any

from grpc import aio

from klamm.wire.stubs import Service


class RawStub:
    """A stub whose methods are gRPC's own callables, as in `await RawStub(channel, BROKER).list_offsets(request,
    timeout=1.5)`."""

    def __init__(self, channel: aio.Channel, service: Service[Any, Any]) -> None:
        for method in service.methods:
            kind = "_".join(
                "stream" if many else "unary" for many in (method.client_streaming, method.server_streaming)
            )
            multicallable = getattr(channel, kind)(
                method.path,
                request_serializer=method.request_serializer,
                response_deserializer=method.response_deserializer,
            )
            setattr(self, method.name, multicallable)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service has no method {name!r}")
