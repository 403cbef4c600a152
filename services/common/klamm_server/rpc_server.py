"""A gRPC server for servicers described by the contracts, with health and reflection.

Every one of them tells its version and clock (`self_description.py`).

A servicer is any object with one coroutine (or async generator, where the answer streams) per RPC, named in
snake_case. What it raises unexpectedly is logged with the RPC's name and answered INTERNAL: expected outcomes
are error codes in the body.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from klamm.errors import KlammError
from klamm.health import LIVENESS
from klamm.wire.service import SERVER, Method, methods
from klamm_server import tracing
from klamm_server.bound_sockets import bound_sockets
from klamm_server.event_queue import QueueFullError
from klamm_server.listeners import CAME_BY, DEFAULT_NAME
from klamm_server.self_description import ServerServicer

log = logging.getLogger(__name__)


class RpcServer:
    """One gRPC server for each listener, with the same services.

    `max_message_bytes` bounds what it receives (`socket.request.max.bytes`), `max_concurrent_rpcs` how many
    calls of a listener it works on; one more is answered RESOURCE_EXHAUSTED by gRPC itself."""

    def __init__(self, *, max_message_bytes: int, max_concurrent_rpcs: int) -> None:
        self._max_concurrent_rpcs = max_concurrent_rpcs
        self._options = [
            # Two processes on one port would silently share its connections.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", max_concurrent_rpcs),
            # gRPC cancels calls that wait to be accepted from 1,000 on, at random; the bounds here are the above.
            ("grpc.server.max_pending_requests", max_concurrent_rpcs),
            ("grpc.server.max_pending_requests_hard_limit", max_concurrent_rpcs),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ]
        self._health = health_aio.HealthServicer()
        self._services: dict[ServiceDescriptor, object] = {}
        self._servers: list[aio.Server] = []
        self.add_service(SERVER, ServerServicer())

    def add_service(self, service: ServiceDescriptor, servicer: object) -> None:
        """Registers every RPC of `service`, before the start; raises AttributeError when the servicer lacks one."""
        for method in methods(service):
            getattr(servicer, method.name)
        self._services[service] = servicer

    async def start(self, bind: str, port: int, listener: str = DEFAULT_NAME) -> int:
        """Listens at every address of `bind`, which may be empty, and answers; returns the port (chosen by the system
        when `port` is 0). Once for each listener.

        Raises KlammError when one of the addresses cannot be bound."""
        server = self._make_server(listener)
        addresses, bound_port = await asyncio.to_thread(_free_addresses, bind, port)
        for address in addresses:
            try:
                server.add_insecure_port(address)
            except RuntimeError as error:
                raise KlammError(f"cannot listen on {address}: {error}") from error
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.become_unhealthy()
        self._servers.append(server)
        await server.start()
        return bound_port

    def _make_server(self, listener: str) -> aio.Server:
        server = aio.server(
            interceptors=tracing.server_interceptors(),
            maximum_concurrent_rpcs=self._max_concurrent_rpcs,
            options=self._options,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME]
        for service, servicer in self._services.items():
            handlers = {one.path.rpartition("/")[2]: _handler(one, servicer, listener) for one in methods(service)}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
            names.append(service.full_name)
        reflection.enable_server_reflection(names, server)
        return server

    async def report_health(self, wait_serving: Callable[[bool], Awaitable[None]]) -> None:
        """Health says SERVING from when `wait_serving(True)` returns until `wait_serving(False)` does, again and again
        until cancelled. Calls are taken all the time, but the services may not be ready for them."""
        while True:
            await wait_serving(True)
            await self._set_health(health_pb2.HealthCheckResponse.SERVING)
            await wait_serving(False)
            log.warning("not serving: it has no part in the cluster at present")
            await self.become_unhealthy()

    async def become_unhealthy(self) -> None:
        """Health says NOT_SERVING, as it does from the start on."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def _set_health(self, status: int) -> None:
        for name in ["", *(service.full_name for service in self._services)]:
            await self._health.set(name, status)

    async def stop(self, grace_s: float) -> None:
        """Takes no more calls; those under way have `grace_s` seconds."""
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))


def _free_addresses(bind: str, port: int) -> tuple[list[str], int]:
    """What gRPC is to listen at, and the port. Of several addresses it would content itself with one."""
    held = bound_sockets(bind, port)
    families = [one.family for one in held]
    names = [one.getsockname() for one in held]
    for one in held:
        one.close()
    bound_port: int = names[0][1]
    if bind in {"", "[::]"}:
        # One socket for both families; gRPC takes 0.0.0.0 where there is no IPv6.
        return [f"[::]:{bound_port}"], bound_port
    return [_with_port(*pair) for pair in zip(families, names, strict=True)], bound_port


def _with_port(family: socket.AddressFamily | int, name: tuple[Any, ...]) -> str:
    host, _ = socket.getnameinfo(name, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    return f"[{host}]:{name[1]}" if family == socket.AF_INET6 else f"{host}:{name[1]}"


def _handler(method: Method, servicer: object, listener: str) -> Any:
    function = getattr(servicer, method.name)
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[method.client_streaming, method.server_streaming]
    guard = _guard_stream if method.server_streaming else _guard_unary
    return make(
        guard(method.path, listener, function),
        request_deserializer=method.request_deserializer,
        response_serializer=method.response_serializer,
    )


def _guard_unary(path: str, listener: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def guarded(request: Any, context: Any) -> Any:
        CAME_BY.set(listener)
        try:
            return await function(request, context)
        except aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge: nothing else may leave as a bare INTERNAL
            await _abort(path, context, error)

    return guarded


def _guard_stream(
    path: str, listener: str, function: Callable[..., AsyncIterator[Any]]
) -> Callable[..., AsyncIterator[Any]]:
    @functools.wraps(function)
    async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
        CAME_BY.set(listener)
        try:
            async for response in function(request, context):
                yield response
        except aio.AbortError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            await _abort(path, context, error)

    return guarded


async def _abort(path: str, context: Any, error: Exception) -> None:
    """A full queue asks to come back, a malformed request (any other KlammError) is the caller's fault, the
    rest is ours."""
    if isinstance(error, QueueFullError):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
    if isinstance(error, KlammError):
        log.info("rpc=%s refused=%s", path, error)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    log.exception("rpc=%s failed", path)
    await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
