"""One gRPC channel per server of a kind.

A server that is fenced may hang, and with it whoever waits for its answer: such calls end at once, as those to a server
that is gone do, and are for their callers to repeat wherever they belong by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from grpc import StatusCode, aio

from klamm.connection import is_cancelled
from klamm.wire.service import Stub, methods
from klamm_server import tracing


class Channels:
    """`stub` dials on first use; `end_calls_except` with each change of who is live; `close` at the end."""

    def __init__(self, service: ServiceDescriptor, options: list[tuple[str, int]]) -> None:
        self._service = service
        self._options = options
        self._servers: dict[str, tuple[aio.Channel, _EndingStub]] = {}

    def stub(self, address: str) -> Stub:
        """The RPCs of the server at that address."""
        if address not in self._servers:
            channel = aio.insecure_channel(address, options=self._options, interceptors=tracing.client_interceptors())
            self._servers[address] = (channel, _EndingStub(channel, self._service, address))
        return self._servers[address][1]

    def end_calls_except(self, live: Collection[str]) -> None:
        """Calls to other addresses than these raise UNAVAILABLE."""
        for address, (_, stub) in self._servers.items():
            if address not in live:
                stub.end_calls()

    async def close(self) -> None:
        """Ends the calls under way."""
        servers, self._servers = self._servers, {}
        for channel, _ in servers.values():
            await channel.close()


class _EndingStub(Stub):
    """Its unary calls can be ended from outside."""

    def __init__(self, channel: aio.Channel, service: ServiceDescriptor, address: str) -> None:
        super().__init__(channel, service)
        self._address = address
        self._under_way: set[aio.UnaryUnaryCall] = set()
        for method in methods(service):
            if not (method.client_streaming or method.server_streaming):
                setattr(self, method.name, self._ending(getattr(self, method.name)))

    def end_calls(self) -> None:
        for call in self._under_way:
            call.cancel()

    def _ending(self, multicallable: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        async def ask(request: Any, *, timeout: float | None = None) -> Any:
            call = multicallable(request, timeout=timeout)
            self._under_way.add(call)
            try:
                return await call
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
                raise aio.AioRpcError(
                    StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), details=f"{self._address} is fenced"
                ) from None
            finally:
                self._under_way.discard(call)

        return ask
