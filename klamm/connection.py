"""One server as a client reaches it: a gRPC channel whose failures are this project's errors.

Calls look like those of klamm.wire.service.Stub. A transport failure never leaves as a grpc error:

    gRPC status                     raised
    DEADLINE_EXCEEDED               RequestTimedOutError
    UNAVAILABLE, CANCELLED          NetworkError
    RESOURCE_EXHAUSTED              MessageTooLargeError when a message was too large, else NetworkError
    INVALID_ARGUMENT                InvalidRequestError
    UNIMPLEMENTED                   UnsupportedVersionError
    anything else                   UnknownServerError
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio

from klamm.config import ClientConfig
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, IllegalStateError
from klamm.tracing import client_interceptors
from klamm.wire.service import methods

_KEEPALIVE_TIME_MS: Final = 30_000
_KEEPALIVE_TIMEOUT_MS: Final = 10_000

_CODES: Final = {
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
    grpc.StatusCode.UNAVAILABLE: ErrorCode.NETWORK_EXCEPTION,
    grpc.StatusCode.CANCELLED: ErrorCode.NETWORK_EXCEPTION,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.NETWORK_EXCEPTION,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.INVALID_REQUEST,
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
}
_TOO_LARGE: Final = "larger than max"


class _Process:
    """Whether gRPC has worked in this process, or had in its parent when this one was forked."""

    has_used_grpc = False
    inherited_grpc = False

    @classmethod
    def after_fork_in_child(cls) -> None:
        cls.inherited_grpc = cls.has_used_grpc


os.register_at_fork(after_in_child=_Process.after_fork_in_child)


def require_usable_grpc() -> None:
    """Raises IllegalStateError in a process forked from one that had a connection.

    gRPC's own threads do not survive the fork, and every call would wait for them without end."""
    if _Process.inherited_grpc:
        raise IllegalStateError(
            "this process was forked from one that had a Klamm client; create the first client after the fork,"
            " or start processes with the 'spawn' method"
        )


class Connection:
    """The channel to one address. It dials on first use and again whenever it must."""

    def __init__(self, address: str, config: ClientConfig) -> None:
        _Process.has_used_grpc = True
        self.address = address
        self._request_timeout_ms = config.request_timeout_ms
        self._channel = aio.insecure_channel(
            address,
            options=_channel_options(config),
            interceptors=client_interceptors() if config.tracing_enable else None,
        )
        self._stubs: dict[str, RemoteStub] = {}

    def stub(self, service: ServiceDescriptor) -> RemoteStub:
        """The RPCs of `service` at this address."""
        stub = self._stubs.get(service.full_name)
        if stub is None:
            stub = RemoteStub(self._channel, service, self.address, self._request_timeout_ms)
            self._stubs[service.full_name] = stub
        return stub

    async def close(self) -> None:
        """Ends it; calls under way raise NetworkError."""
        await self._channel.close()


class RemoteStub:
    """`await stub.list_offsets(request)`, `async for answer in stub.fetch_stream(request)`.

    Each takes `timeout_ms`; without it a unary call has `request.timeout.ms`, a stream no limit."""

    def __init__(self, channel: aio.Channel, service: ServiceDescriptor, address: str, request_timeout_ms: int) -> None:
        for method in methods(service):
            arity = f"{_arity(method.client_streaming)}_{_arity(method.server_streaming)}"
            multicallable = getattr(channel, arity)(
                method.path,
                request_serializer=method.request_serializer,
                response_deserializer=method.response_deserializer,
            )
            target = f"{method.name} at {address}"
            remote = (
                _remote_stream(multicallable, target)
                if method.server_streaming
                else _remote_call(multicallable, target, request_timeout_ms)
            )
            setattr(self, method.name, remote)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service has no method {name!r}")


def _remote_call(multicallable: Any, target: str, default_timeout_ms: int) -> Callable[..., Awaitable[Any]]:
    async def call(request: Any, *, timeout_ms: int = default_timeout_ms) -> Any:
        try:
            return await multicallable(request, timeout=timeout_ms / 1000)
        except aio.AioRpcError as error:
            _raise_if_cancelled()
            raise _translate(error, target) from error
        except asyncio.CancelledError:
            _raise_unless_cancelled(target)
            raise

    return call


def _remote_stream(multicallable: Any, target: str) -> Callable[..., AsyncIterator[Any]]:
    async def stream(request: Any, *, timeout_ms: int | None = None) -> AsyncIterator[Any]:
        call = multicallable(request, timeout=None if timeout_ms is None else timeout_ms / 1000)
        try:
            async for answer in call:
                yield answer
        except aio.AioRpcError as error:
            _raise_if_cancelled()
            raise _translate(error, target) from error
        except asyncio.CancelledError:
            _raise_unless_cancelled(target)
            raise
        finally:
            call.cancel()

    return stream


def is_cancelled() -> bool:
    """Whether somebody wants the current task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _raise_if_cancelled() -> None:
    """A cancellation that meets the end of a call comes out as a status: who retries would go on for ever."""
    if is_cancelled():
        raise asyncio.CancelledError


def _raise_unless_cancelled(target: str) -> None:
    """A channel closed under a call ends it like a cancellation of the caller, which it is not."""
    if not is_cancelled():
        raise EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION](f"{target}: the connection was closed")


def _translate(error: aio.AioRpcError, target: str) -> BrokerError:
    details = error.details() or error.code().name
    code = _CODES.get(error.code(), ErrorCode.UNKNOWN_SERVER_ERROR)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        code = ErrorCode.MESSAGE_TOO_LARGE
    return code.exception(f"{target}: {details}")


def _arity(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _channel_options(config: ClientConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", config.receive_message_max_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", config.reconnect_backoff_ms),
        ("grpc.max_reconnect_backoff_ms", config.reconnect_backoff_max_ms),
        # gRPC's name for how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", config.socket_connection_setup_timeout_ms),
        # A container that comes back may have another address behind its name; the default is to look in 30 seconds.
        ("grpc.dns_min_time_between_resolutions_ms", 1_000),
        ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        # Clients of one process must not share (and close) each other's connections.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
    ]
