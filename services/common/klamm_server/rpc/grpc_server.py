"""gRPC listeners, with gRPC's own health and reflection services."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from klamm import tracing
from klamm.errors import KlammError
from klamm.health import LIVENESS
from klamm.rpc.grpc_transport import GrpcTransport, TlsSource, why_refused
from klamm.rpc.status import CallFailed, Status
from klamm.security.material import TlsMaterial
from klamm.setting import INT_MAX
from klamm.wire.service import Method
from klamm_server.net.bound_sockets import bound_sockets
from klamm_server.net.listeners import CAME_BY
from klamm_server.net.source_parts import divide
from klamm_server.rpc.before_login import (
    HEALTH,
    LoginInterceptor,
    UnauthenticatedHealth,
    abort,
    unread_handler,
)
from klamm_server.rpc.own_services import FairHealth, FairReflection
from klamm_server.rpc.refusals import failure_of
from klamm_server.rpc.transport import Callers, Handler, ServerLimits
from klamm_server.runtime.tracing import server_interceptors
from klamm_server.security.server_tls import ServerTls

log = logging.getLogger(__name__)

_SALT_BITS: Final = 32
_HANDSHAKE_BEGINS_S: Final = 0.1
"""The longest time between a gRPC thread's request for certificates and its handshake. gRPC frees the old certificates
when it gets new ones. If a thread is between the two then, the process crashes."""
_CERTIFICATES_MAX: Final = 1_024
"""The maximum number of certificates whose ends are cached."""
_STREAMS_MAX: Final = 1_000
"""The maximum number of calls under way of one connection where clients log in. So no client uses up
`max.concurrent.rpcs` by one connection. gRPC's clients keep further calls back."""
SHARE_OF_AN_ADDRESS: Final = 10
"""One address of clients may have this part of a listener's connections. A Kafka listener has the same share for
connections before the login."""
DIVIDED_MIN: Final = 1_000
"""A listener with fewer connections does not divide them, because the shares would be too small."""
PLAIN_HANDSHAKE_MS: Final = 10_000
"""The longest time from the begin of a connection without TLS until its settings of HTTP/2 have come."""
_METADATA_MAX_BYTES: Final = 65_536
"""The maximum size of a call's metadata, which contain the messages of logins, and tokens. gRPC's own limit is 16 KiB,
from 8 KiB on with exceptions at random."""


class GrpcServerTransport(GrpcTransport):
    """A `klamm_server.rpc.transport.ServerTransport`. Calls are spans if the traces of this process are on.

    If a TLS handshake with another server fails, the certificate may be replaced soon. So its calls fail like those of
    an unreachable server, with the reason in the text."""

    def __init__(self, *, tls: TlsSource | None = None) -> None:
        super().__init__(traces=tracing.is_on, tls=tls)

    def server(self, limits: ServerLimits) -> GrpcServer:
        return GrpcServer(limits)

    async def explain_plain(self, address: str, failure: CallFailed) -> CallFailed:
        return failure

    async def explain(self, address: str, material: TlsMaterial, failure: CallFailed) -> CallFailed:
        why = await why_refused(address, material, failure)
        return failure if why is None else CallFailed(failure.status, why)


class GrpcServer:
    """One gRPC server for each listener."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._health = FairHealth()
        self._names: set[str] = {""}
        """The names of the services that have a health. The empty name stands for the whole server."""
        self._servers: list[aio.Server] = []

    async def listen(
        self,
        bind: str,
        port: int,
        listener: str,
        handlers: Sequence[Handler],
        tls: ServerTls | None = None,
        callers: Callers | None = None,
        refusal: Callable[[str, str], str | None] | None = None,
    ) -> int:
        server = self._make_server(listener, handlers, tls, callers, refusal)
        held = await asyncio.to_thread(bound_sockets, bind, port)
        try:
            addresses, bound_port = _addresses(bind, held)
            for address in addresses:
                for _ in range(_part_count(self._limits)):
                    _add_port(server, address, tls)
        finally:
            # Close the sockets only now. Otherwise another program that binds to any port may get this one.
            for bound_socket in held:
                bound_socket.close()
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await self.report_health(False)
        self._servers.append(server)
        await server.start()
        if (parts := _part_count(self._limits)) > 1:
            await asyncio.to_thread(_divide, bound_port, parts)
        return bound_port

    async def report_health(self, is_serving: bool) -> None:
        answer = health_pb2.HealthCheckResponse
        for name in self._names:
            await self._health.set(name, answer.SERVING if is_serving else answer.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(*(server.stop(grace_s) for server in self._servers))

    def _make_server(
        self,
        listener: str,
        handlers: Sequence[Handler],
        tls: ServerTls | None,
        callers: Callers | None,
        refusal: Callable[[str, str], str | None] | None,
    ) -> aio.Server:
        server = aio.server(
            interceptors=[*([] if callers is None else [LoginInterceptor(callers)]), *server_interceptors()],
            maximum_concurrent_rpcs=self._limits.concurrent_calls_max,
            options=_options(self._limits, tls, streams_max=INT_MAX if callers is None else _STREAMS_MAX),
        )
        if callers is None:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        else:
            server.add_generic_rpc_handlers((UnauthenticatedHealth(self._health).handlers(),))
        shows_certificates = tls is not None and tls.settings.ssl_client_auth == "required"
        by_service: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for handler in handlers:
            _, service, name = handler.method.path.split("/")
            guarded = _guarded(handler, listener, shows_certificates)
            if callers is not None and handler.method.path in callers.open_paths:
                by_service[service][name] = unread_handler(guarded, handler.method.response_serializer)
            else:
                by_service[service][name] = _method_handler(handler.method, guarded)
        for service, its_handlers in by_service.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, its_handlers),))
        self._names.update(by_service)
        names = [HEALTH, reflection.SERVICE_NAME, *by_service]
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(FairReflection(names, callers), server)
        if refusal is not None:
            # The last handlers: gRPC asks them only about calls that no other handler has.
            server.add_generic_rpc_handlers((_Refusals(listener, shows_certificates, callers, refusal),))
        return server


class _Refusals(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Refuses the calls for which `refusal` returns a text. It does not read their requests."""

    def __init__(
        self,
        listener: str,
        shows_certificates: bool,
        callers: Callers | None,
        refusal: Callable[[str, str], str | None],
    ) -> None:
        self._listener = listener
        self._shows_certificates = shows_certificates
        self._callers = callers
        self._refusal = refusal

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        text = self._refusal(path, self._listener)
        if text is None:
            return None

        async def refuse(requests: Any, context: Any) -> AsyncIterator[Any]:
            if self._callers is not None:
                await self._callers.session(context)
            await abort(context, CallFailed(Status.UNIMPLEMENTED, text))
            yield

        return grpc.stream_stream_rpc_method_handler(
            _guard_stream(path, self._listener, self._shows_certificates, refuse)
        )


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """The credentials of one address: each connection is made with what `tls` has then. gRPC asks in its own threads,
    one after the other, before the handshake."""
    tls.settings.check_grpc_listener()
    handed_version = tls.version

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal handed_version
        version = tls.version
        if version == handed_version:
            return None
        # During this pause, gRPC starts no further handshake, and handshakes that it started before have begun.
        time.sleep(_HANDSHAKE_BEGINS_S)
        handed_version = version
        return _certificates(tls.material)

    return grpc.dynamic_ssl_server_credentials(
        _certificates(tls.material),
        changed,
        require_client_authentication=tls.settings.ssl_client_auth == "required",
    )


def _certificates(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    assert material.key is not None, "ListenerTlsSettings have a key"
    return grpc.ssl_server_certificate_configuration(
        [(material.key.reveal().encode(), material.chain.encode())],
        root_certificates=None if material.trusted is None else material.trusted.encode(),
    )


def _options(limits: ServerLimits, tls: ServerTls | None, *, streams_max: int) -> list[tuple[str, int]]:
    return [
        # With gRPC's defaults, a silent client would hold a connection for a minute, or two with TLS.
        (
            "grpc.server_handshake_timeout_ms",
            PLAIN_HANDSHAKE_MS if tls is None else tls.settings.ssl_handshake_timeout_ms,
        ),
        # The parts of an address share its port. Another process cannot share it by mistake, because `bound_sockets`
        # binds without this option first.
        ("grpc.so_reuseport", int(_part_count(limits) > 1)),
        ("grpc.max_receive_message_length", limits.receive_max_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _METADATA_MAX_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_MAX_BYTES),
        ("grpc.max_concurrent_streams", min(limits.concurrent_calls_max, streams_max)),
        # gRPC ends the process if it gets INT_MAX.
        ("grpc.max_allowed_incoming_connections", min(limits.connections_max, INT_MAX - 1) // _part_count(limits)),
        # From 1,000 waiting calls on, gRPC would cancel some of them at random. The limits above apply instead.
        ("grpc.server.max_pending_requests", limits.concurrent_calls_max),
        ("grpc.server.max_pending_requests_hard_limit", limits.concurrent_calls_max),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]


def _part_count(limits: ServerLimits) -> int:
    """Returns the number of gRPC's sockets at each address."""
    return SHARE_OF_AN_ADDRESS if limits.connections_max >= DIVIDED_MIN else 1


def _divide(port: int, part_count: int) -> None:
    """Divides the connections among gRPC's sockets by the client's address, if the system supports that."""
    try:
        divide(port, part_count, secrets.randbits(_SALT_BITS))
    except OSError as error:
        log.warning("one address may take all connections of a gRPC listener, port=%d: %s", port, error)


def _addresses(bind: str, held: Sequence[socket.socket]) -> tuple[list[str], int]:
    """Returns the addresses where gRPC listens, and the port. With several addresses, gRPC would be content if one of
    them works."""
    families = [bound_socket.family for bound_socket in held]
    names = [bound_socket.getsockname() for bound_socket in held]
    bound_port: int = names[0][1]
    if bind in {"", "[::]"}:
        # One socket serves both families. If there is no IPv6, gRPC uses 0.0.0.0.
        return [f"[::]:{bound_port}"], bound_port
    return [_with_port(*pair) for pair in zip(families, names, strict=True)], bound_port


def _with_port(family: socket.AddressFamily | int, name: tuple[Any, ...]) -> str:
    host, _ = socket.getnameinfo(name, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
    return f"[{host}]:{name[1]}" if family == socket.AF_INET6 else f"{host}:{name[1]}"


def _add_port(server: aio.Server, address: str, tls: ServerTls | None) -> None:
    try:
        if tls is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, _credentials(tls))
    except RuntimeError as error:
        raise KlammError(f"cannot listen on {address}: {error}") from error


def _method_handler(method: Method, answer: Callable[..., Any]) -> Any:
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[method.client_streaming, method.server_streaming]
    return make(
        answer, request_deserializer=method.request_deserializer, response_serializer=method.response_serializer
    )


def _guarded(handler: Handler, listener: str, shows_certificates: bool) -> Callable[..., Any]:
    guard = _guard_stream if handler.method.server_streaming else _guard_unary
    return guard(handler.method.path, listener, shows_certificates, handler.answer)


def _guard_unary(
    path: str, listener: str, shows_certificates: bool, function: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def guarded(request: Any, context: Any) -> Any:
        CAME_BY.set(listener)
        try:
            if shows_certificates:
                _refuse_resumed(context)
                _refuse_expired(context)
            return await function(request, context)
        except Exception as error:  # noqa: BLE001 - the edge: nothing else may leave as a bare INTERNAL
            await abort(context, failure_of(path, error))

    return guarded


def _guard_stream(
    path: str, listener: str, shows_certificates: bool, function: Callable[..., AsyncIterator[Any]]
) -> Callable[..., AsyncIterator[Any]]:
    @functools.wraps(function)
    async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
        CAME_BY.set(listener)
        try:
            if shows_certificates:
                _refuse_resumed(context)
                _refuse_expired(context)
            async for response in function(request, context):
                if shows_certificates:
                    _refuse_expired(context)
                yield response
        except Exception as error:  # noqa: BLE001 - as above
            await abort(context, failure_of(path, error))

    return guarded


def _refuse_resumed(context: Any) -> None:
    """Refuses a call over a resumed TLS session. The client's certificate was checked only when the session began, and
    gRPC lets a session last for days."""
    if context.auth_context().get("ssl_session_reused") == [b"true"]:
        raise CallFailed(Status.UNAUTHENTICATED, "the connection resumed a TLS session, expected a full TLS handshake")


def _refuse_expired(context: Any) -> None:
    """Refuses a call over a connection whose client has shown a certificate that has expired since. TLS checks the
    certificate only when the connection begins."""
    shown = context.auth_context().get("x509_pem_cert")
    if shown and _expires_s(shown[0]) <= time.time():
        raise CallFailed(Status.UNAUTHENTICATED, "the client's certificate has expired since the connection was made")


@functools.lru_cache(_CERTIFICATES_MAX)
def _expires_s(pem: bytes) -> float:
    # Import here, because few servers have listeners with certificates of clients.
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
