"""The transport over gRPC for clients. `klamm_server.rpc.grpc_server` adds the part for servers."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Protocol

import grpc
from grpc import aio

from klamm.client_task import client_task
from klamm.errors import IllegalStateError
from klamm.ordered_set import OrderedSet
from klamm.rpc.call_metadata import CALL_METADATA, Metadata
from klamm.rpc.handshakes import (
    SPEAKS_KAFKA,
    SPEAKS_TLS,
    HandshakeFailed,
    ask_server,
    is_worth_asking,
    speaks_kafka,
    speaks_tls,
    why_failed,
)
from klamm.rpc.login import SaslSource
from klamm.rpc.login_channel import LoginChannel
from klamm.rpc.options import ChannelOptions
from klamm.rpc.status import CallFailed, Status
from klamm.rpc.tracing_interceptors import client_interceptors
from klamm.rpc.transport import Channel, StreamCall, UnaryCall
from klamm.security.contexts import client_context
from klamm.security.material import TlsMaterial
from klamm.security.tls_settings import TlsSettings
from klamm.wire.service import Method

STATUSES: Final = {grpc.StatusCode[status.name]: status for status in Status}
"""This project's status for each status of gRPC."""

Explain = Callable[[CallFailed], Awaitable[CallFailed]]


class _Process:
    """Notes whether this process has used gRPC, and whether its parent had when this process was forked."""

    has_used_grpc = False
    inherited_grpc = False

    @classmethod
    def after_fork_in_child(cls) -> None:
        cls.inherited_grpc = cls.has_used_grpc


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_Process.after_fork_in_child)


class TlsSource(Protocol):
    """Supplies the keys and certificates of channels."""

    @property
    def version(self) -> int:
        """A number that grows with every change of `material`."""

    @property
    def material(self) -> TlsMaterial:
        """Returns the keys and certificates for the next connection."""


class GrpcTransport:
    """The transport that makes calls by gRPC.

    It raises IllegalStateError in a process that was forked from one with a connection. gRPC's threads do not survive a
    fork, so every call would wait for ever.

    With `traces`, calls of a new channel are spans, and a channel without OpenTelemetry raises ConfigError. With `tls`,
    channels are encrypted, and a failed handshake is HandshakeFailed. With `sasl`, channels log in before their first
    call, and a failed login is LoginFailed."""

    def __init__(
        self,
        *,
        traces: Callable[[], bool] = lambda: False,
        tls: TlsSource | None = None,
        sasl: SaslSource | None = None,
    ) -> None:
        if _Process.inherited_grpc:
            raise IllegalStateError(
                "this process was forked from one that had a Klamm client; create the first client after the fork,"
                " or start processes with the 'spawn' method"
            )
        self._traces = traces
        self._tls = tls
        self._sasl = sasl

    def channel(self, address: str, options: ChannelOptions) -> Channel:
        _Process.has_used_grpc = True
        settings: Any = {
            "options": grpc_options(options),
            "interceptors": client_interceptors() if self._traces() else None,
        }
        if self._tls is None:
            channel = aio.insecure_channel(address, **settings)
            return self._with_login(GrpcChannel(channel, functools.partial(self.explain_plain, address)))

        def dial(material: TlsMaterial) -> Channel:
            channel = aio.secure_channel(address, channel_credentials(material), **settings)
            return self._with_login(GrpcChannel(channel, functools.partial(self.explain, address, material)))

        return SecureChannel(dial, self._tls)

    def _with_login(self, channel: Channel) -> Channel:
        """Returns a channel that logs in, if the transport has logins. A session is valid for one connection, and each
        of these channels has only one."""
        return channel if self._sasl is None else LoginChannel(channel, self._sasl)

    async def explain_plain(self, address: str, failure: CallFailed) -> CallFailed:
        """Returns the failure of a call without TLS, like `explain`. A server that expects TLS or Kafka's protocol
        closes such connections."""
        host, port = _host_and_port(address)
        if is_worth_asking(host, failure.details):
            if await speaks_tls(host, port):
                return CallFailed(failure.status, SPEAKS_TLS)
            if await speaks_kafka(host, port):
                return CallFailed(failure.status, SPEAKS_KAFKA)
        return failure

    async def explain(self, address: str, material: TlsMaterial, failure: CallFailed) -> CallFailed:
        """Returns the error for the caller of a failed call. It is HandshakeFailed if the two ends do not accept each
        other."""
        why = await why_refused(address, material, failure)
        return failure if why is None else HandshakeFailed(failure.status, why)


class GrpcChannel:
    """A `klamm.rpc.transport.Channel` over gRPC. `explain` turns a failure into the error for the caller."""

    def __init__(self, channel: aio.Channel, explain: Explain) -> None:
        self._channel = channel
        self._explain = explain

    def unary(self, method: Method) -> Callable[[Any, int], _Unary]:
        multicallable = _multicallable(self._channel.unary_unary, method)
        return lambda request, timeout_ms: _Unary(
            multicallable(request, timeout=timeout_ms / 1000, metadata=_metadata()), self._explain
        )

    def stream(self, method: Method) -> Callable[[Any, int | None], _Stream]:
        if not method.client_streaming:
            to_one = _multicallable(self._channel.unary_stream, method)
            return lambda request, timeout_ms: _Stream(
                to_one(request, timeout=_seconds(timeout_ms), metadata=_metadata()), self._explain
            )
        if method.server_streaming:
            to_many = _multicallable(self._channel.stream_stream, method)
            return lambda _, timeout_ms: _Stream(
                to_many(timeout=_seconds(timeout_ms), metadata=_metadata()), self._explain
            )
        upload = _multicallable(self._channel.stream_unary, method)
        return lambda _, timeout_ms: _Upload(upload(timeout=_seconds(timeout_ms), metadata=_metadata()), self._explain)

    async def close(self) -> None:
        await self._channel.close()


class SecureChannel:
    """A `klamm.rpc.transport.Channel` whose keys and certificates may change. After a change, calls use a new
    connection. The old connection is closed when its calls have ended."""

    def __init__(self, dial: Callable[[TlsMaterial], Channel], tls: TlsSource) -> None:
        self._dial = dial
        self._tls = tls
        self._current = _Generation(dial(tls.material), tls.version)
        self._closing: OrderedSet[asyncio.Task[None]] = OrderedSet()

    def unary(self, method: Method) -> Callable[[Any, int], UnaryCall]:
        return lambda request, timeout_ms: self._newest().begin_unary(method, request, timeout_ms)

    def stream(self, method: Method) -> Callable[[Any, int | None], StreamCall]:
        return lambda request, timeout_ms: self._newest().begin_stream(method, request, timeout_ms)

    async def close(self) -> None:
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self._current.channel.close()

    def _newest(self) -> _Generation:
        if self._current.version != self._tls.version:
            retired, self._current = self._current, _Generation(self._dial(self._tls.material), self._tls.version)
            task = client_task(retired.close_when_idle(), name="klamm-retired-connection")
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return self._current


class _Generation:
    """The connection that was made with one version of the keys and certificates."""

    def __init__(self, channel: Channel, version: int) -> None:
        self.channel = channel
        self.version = version
        self._unary: dict[str, Callable[[Any, int], UnaryCall]] = {}
        self._stream: dict[str, Callable[[Any, int | None], StreamCall]] = {}
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin_unary(self, method: Method, request: Any, timeout_ms: int) -> UnaryCall:
        begin = self._unary.get(method.path)
        if begin is None:
            begin = self._unary[method.path] = self.channel.unary(method)
        call = begin(request, timeout_ms)
        self._count(call)
        return call

    def begin_stream(self, method: Method, request: Any, timeout_ms: int | None) -> StreamCall:
        begin = self._stream.get(method.path)
        if begin is None:
            begin = self._stream[method.path] = self.channel.stream(method)
        call = begin(request, timeout_ms)
        self._count(call)
        return call

    async def close_when_idle(self) -> None:
        """Closes the connection when its calls have ended. If this is cancelled, ends the calls too."""
        try:
            await self._idle.wait()
        finally:
            await self.channel.close()

    def _count(self, call: UnaryCall | StreamCall) -> None:
        self._under_way += 1
        self._idle.clear()
        call.add_done_callback(self._on_end)

    def _on_end(self, _: object) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()


class _Unary:
    __slots__ = ("_call", "_explain")

    def __init__(self, call: aio.UnaryUnaryCall, explain: Explain) -> None:
        self._call = call
        self._explain = explain

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            return (yield from self._call.__await__())
        except aio.AioRpcError as error:
            raise (yield from self._explain(_failure(error)).__await__()) from error

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._call.add_done_callback(function)

    def cancel(self) -> object:
        return self._call.cancel()


class _Stream:
    __slots__ = ("_call", "_explain")

    def __init__(self, call: Any, explain: Explain) -> None:
        self._call = call
        self._explain = explain

    async def write(self, request: Any) -> None:
        try:
            await self._call.write(request)
        except aio.AioRpcError as error:
            raise await self._explain(_failure(error)) from error
        except asyncio.InvalidStateError as error:
            raise CallFailed(Status.UNAVAILABLE, f"the call is over: {error}") from error

    async def read(self) -> Any:
        try:
            answer = await self._call.read()
        except aio.AioRpcError as error:
            raise await self._explain(_failure(error)) from error
        return None if answer is aio.EOF else answer

    def done(self) -> bool:
        return bool(self._call.done())

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._call.add_done_callback(function)

    def cancel(self) -> object:
        return self._call.cancel()


class _Upload(_Stream):
    """A call with many requests and one answer, which ends the call."""

    __slots__ = ("_is_answered",)

    def __init__(self, call: aio.StreamUnaryCall, explain: Explain) -> None:
        super().__init__(call, explain)
        self._is_answered = False

    async def read(self) -> Any:
        if self._is_answered:
            return None
        try:
            answer = await self._call
        except aio.AioRpcError as error:
            raise await self._explain(_failure(error)) from error
        self._is_answered = True
        return answer


def channel_credentials(material: TlsMaterial) -> grpc.ChannelCredentials:
    """Returns the credentials with the client's certificate and the trusted CAs. Without a truststore, gRPC's public
    CAs are trusted."""
    return grpc.ssl_channel_credentials(
        root_certificates=None if material.trusted is None else material.trusted.encode(),
        private_key=None if material.key is None else material.key.reveal().encode(),
        certificate_chain=None if material.key is None else material.chain.encode(),
    )


async def why_refused(address: str, material: TlsMaterial, failure: CallFailed) -> str | None:
    """Returns why the two ends of a connection do not accept each other, or None if a call failed for another
    reason.
    """
    if failure.status is not Status.UNAVAILABLE:
        return None
    host, port = _host_and_port(address)
    if not is_worth_asking(host, failure.details):
        return why_failed(failure.details)
    context = client_context(TlsSettings(), material)
    return await ask_server(host, port, context, shows_certificate=material.key is not None)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def grpc_options(options: ChannelOptions) -> list[tuple[str, int]]:
    """Returns the options with gRPC's names."""
    return [
        ("grpc.max_receive_message_length", options.receive_max_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", options.reconnect_backoff_ms),
        ("grpc.max_reconnect_backoff_ms", options.reconnect_backoff_max_ms),
        # gRPC's name for the timeout of one attempt to connect
        ("grpc.min_reconnect_backoff_ms", options.connection_setup_timeout_ms),
        ("grpc.keepalive_time_ms", options.keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", options.keepalive_timeout_ms),
        # By default gRPC holds back the third ping of a call without data.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.dns_min_time_between_resolutions_ms", options.name_resolution_min_ms),
        # Otherwise channels to one address share a connection, its end and its back-off.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
    ]


def _metadata() -> Metadata | None:
    return CALL_METADATA.get() or None


def _multicallable(make: Callable[..., Any], method: Method) -> Callable[..., Any]:
    made: Callable[..., Any] = make(
        method.path,
        request_serializer=method.request_serializer,
        response_deserializer=method.response_deserializer,
    )
    return made


def _seconds(timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else timeout_ms / 1000


def _failure(error: aio.AioRpcError) -> CallFailed:
    return CallFailed(STATUSES[error.code()], error.details() or "")
