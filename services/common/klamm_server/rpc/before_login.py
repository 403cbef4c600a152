"""What a gRPC listener with logins does for clients that have not logged in.

Requests of strangers may be large, and gRPC keeps a request in memory while it is read. So the listener reads a request
only after the login. The messages of a login are in the call's metadata, which gRPC bounds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from klamm.rpc.grpc_transport import STATUSES
from klamm.rpc.status import CallFailed, Status
from klamm_server.rpc.transport import WANTS_LOGIN, Callers
from klamm_server.security.acls.hosts import network_of
from klamm_server.security.gate import host_of

HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
READING_MAX: Final = 2
"""The maximum number of requests for the health that are read at a time."""
_REQUEST_MAX_BYTES: Final = 1_024
"""The maximum size of a request for the health, which contains the name of a service."""
_GRPC_STATUSES: Final = {status: code for code, status in STATUSES.items()}


async def abort(context: Any, failure: CallFailed) -> None:
    """Ends a call with the status and the text of `failure`. Raises gRPC's exception for that."""
    await context.abort(_GRPC_STATUSES[failure.status], failure.details)


@asynccontextmanager
async def refusing(context: Any) -> AsyncIterator[None]:
    """Ends the call with the CallFailed that the code inside raises."""
    try:
        yield
    except CallFailed as failure:
        await abort(context, failure)


class LoginInterceptor(aio.ServerInterceptor):  # type: ignore[misc]
    """Lets calls with a session pass. Other requests are read after their token is verified, or not at all."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._open_paths = callers.open_paths | {f"/{HEALTH}/{name}" for name in ("Check", "Watch")}

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        metadata = details.invocation_metadata or ()
        if details.method in self._open_paths or self._callers.has_session(metadata):
            return await continuation(details)
        if not self._callers.has_token(metadata):
            return _REFUSED
        handler = await continuation(details)
        return None if handler is None else _after_login(handler, self._callers)


async def _refuse(requests: Any, context: Any) -> AsyncIterator[Any]:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, WANTS_LOGIN)
    yield


_REFUSED: Final = grpc.stream_stream_rpc_method_handler(_refuse)
"""The handler of refused calls. It does not read the request."""


def unread_handler(answer: Callable[[Any, Any], Awaitable[Any]], response_serializer: Any) -> Any:
    """Returns the handler of a call whose request is in its metadata. `answer` gets None as its request."""

    async def call(requests: Any, context: Any) -> AsyncIterator[Any]:
        yield await answer(None, context)

    # Only the handlers of streams leave it open whether a request is read.
    return grpc.stream_stream_rpc_method_handler(call, response_serializer=response_serializer)


def _after_login(handler: Any, callers: Callers) -> Any:
    """Returns a handler that logs the client in by its token. Then it reads the request and calls `handler`."""

    async def call(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async with refusing(context):
            await callers.session(context)
            request = requests if handler.request_streaming else await _first(requests)
        if handler.response_streaming:
            async for response in (handler.stream_stream or handler.unary_stream)(request, context):
                yield response
        else:
            yield await (handler.stream_unary or handler.unary_unary)(request, context)

    return grpc.stream_stream_rpc_method_handler(
        call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
    )


async def _first(requests: AsyncIterator[Any]) -> Any:
    try:
        return await anext(requests)
    except StopAsyncIteration:
        raise CallFailed(Status.INVALID_ARGUMENT, "the call has no request, expected one") from None


class UnauthenticatedHealth:
    """The health service of a listener with logins. Clients call it without a login, so it bounds the memory of their
    requests. `health` bounds the calls that last."""

    def __init__(self, health: health_aio.HealthServicer) -> None:
        self._health = health
        self._readings = Readings()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns the handlers of the service's calls."""
        answers = {"Check": self._check, "Watch": self._watch}
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(answer, response_serializer=_serialized)
            for name, answer in answers.items()
        }
        return grpc.method_handlers_generic_handler(HEALTH, handlers)

    async def _check(self, requests: Any, context: Any) -> None:
        async with refusing(context):
            request = await self._request(context)
        await context.write(await self._health.Check(request, context))

    async def _watch(self, requests: Any, context: Any) -> None:
        async with refusing(context):
            request = await self._request(context)
        await self._health.Watch(request, context)

    async def _request(self, context: Any) -> health_pb2.HealthCheckRequest:
        data = await self._readings.read(context.read(), network_of(host_of(context.peer())))
        if data is aio.EOF:
            return health_pb2.HealthCheckRequest()
        if len(data) <= _REQUEST_MAX_BYTES:
            with suppress(DecodeError):
                return health_pb2.HealthCheckRequest.FromString(data)
        told = f"the request has {len(data)} bytes, expected a HealthCheckRequest of at most {_REQUEST_MAX_BYTES}"
        # Otherwise the exception's traceback keeps the request until the next garbage collection.
        del data
        raise CallFailed(Status.INVALID_ARGUMENT, told)


class Readings:
    """The requests for the health that are being read, at most `READING_MAX` at a time.

    A health check sends its few bytes at once. So if there are too many, the oldest one of the network with the most of
    them ends. A client cannot end the health checks of others by slow ones.
    """

    def __init__(self) -> None:
        self._networks: dict[asyncio.Future[Any], str] = {}
        """The network of each reading, the oldest first."""

    async def read(self, request: Coroutine[Any, Any, Any], network: str) -> Any:
        """Returns what `request` returns. Raises CallFailed if this reading ends for another one."""
        reading = asyncio.ensure_future(request)
        self._networks[reading] = network
        if len(self._networks) > READING_MAX:
            self._end_one()
        try:
            return await reading
        except asyncio.CancelledError:
            if reading in self._networks:
                raise
            raise CallFailed(Status.RESOURCE_EXHAUSTED, "the request came too slowly") from None
        finally:
            self._networks.pop(reading, None)

    def _end_one(self) -> None:
        [(fullest, _)] = Counter(self._networks.values()).most_common(1)
        oldest = next(reading for reading, network in self._networks.items() if network == fullest)
        del self._networks[oldest]
        oldest.cancel()


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
