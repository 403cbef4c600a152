"""A connection to one server. Its stubs raise this project's errors when a call fails.

A failed call raises the BrokerError that `klamm.rpc.status` lists for its status. It raises NetworkError if the
connection was closed, SslAuthenticationError if the TLS handshake failed, and SaslAuthenticationError if the login
failed. A caller that was cancelled meanwhile always gets CancelledError."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm.ordered_set import OrderedSet
from klamm.rpc.cancellation import is_cancelled, raise_if_cancelled
from klamm.rpc.options import ChannelOptions
from klamm.rpc.status import CallFailed
from klamm.rpc.transport import StreamCall, Transport, UnaryCall
from klamm.wire.service import Method
from klamm.wire.stubs import Service, Stub

StubT = TypeVar("StubT", bound=Stub)

CALL_TIMEOUT_MS: Final = 30_000
"""The default timeout of a unary call, in milliseconds. No call waits for ever."""

_NetworkError = EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]


class Connection:
    """A connection to one server. It connects at the first call, and again whenever necessary. `close` it, or use it in
    `async with`.

    A unary call without its own timeout has `timeout_ms`. A stream has no time limit."""

    def __init__(
        self, transport: Transport, address: str, options: ChannelOptions, *, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> None:
        self.address = address
        self._timeout_ms = timeout_ms
        self._channel = transport.channel(address, options)
        self._stubs: dict[str, Stub] = {}
        self._under_way: OrderedSet[UnaryCall] = OrderedSet()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def stub(self, service: Service[StubT, Any]) -> StubT:
        """Returns the stub of `service` at this address."""
        stub = self._stubs.get(service.name)
        if stub is None:
            stub = self._stubs[service.name] = service.stub(self._bind)
        assert isinstance(stub, service.stub)
        return stub

    def end_calls(self) -> None:
        """Ends the unary calls under way with NetworkError. New calls may begin."""
        for call in self._under_way:
            call.cancel()

    async def retire(self) -> None:
        """Closes the connection after the unary calls that are under way now have ended."""
        await asyncio.gather(*(_end_of(call) for call in self._under_way))
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Calls under way raise NetworkError."""
        await self._channel.close()

    def _bind(self, method: Method) -> Callable[..., Any]:
        target = f"{method.name} at {self.address}"
        if not (method.client_streaming or method.server_streaming):
            return self._unary(self._channel.unary(method), target)
        begin = self._channel.stream(method)
        return _duplex(begin, target) if method.client_streaming else _answers(begin, target)

    def _unary(self, begin: Callable[[Any, int], UnaryCall], target: str) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, *, timeout_ms: int = self._timeout_ms) -> Any:
            under_way = begin(request, timeout_ms)
            self._under_way.add(under_way)
            try:
                return await under_way
            except CallFailed as failure:
                raise _error(failure, target) from failure
            except asyncio.CancelledError:
                _raise_unless_cancelled(target)
                raise
            finally:
                self._under_way.discard(under_way)

        return call


def _end_of(call: UnaryCall) -> asyncio.Future[None]:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_end(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    call.add_done_callback(on_end)
    return ended


def _answers(begin: Callable[[Any, int | None], StreamCall], target: str) -> Callable[..., AsyncIterator[Any]]:
    async def answers(request: Any, *, timeout_ms: int | None = None) -> AsyncIterator[Any]:
        call = begin(request, timeout_ms)
        try:
            while (answer := await call.read()) is not None:
                yield answer
        except CallFailed as failure:
            raise _error(failure, target) from failure
        except asyncio.CancelledError:
            _raise_unless_cancelled(target)
            raise
        finally:
            call.cancel()

    return answers


def _duplex(begin: Callable[[Any, int | None], StreamCall], target: str) -> Callable[..., _Duplex]:
    def duplex(*, timeout_ms: int | None = None) -> _Duplex:
        return _Duplex(begin(None, timeout_ms), target)

    return duplex


class _Duplex:
    """A `klamm.wire.calls.Duplex` over the transport's stream. It raises this project's errors."""

    def __init__(self, call: StreamCall, target: str) -> None:
        self._call = call
        self._target = target

    async def write(self, request: Any) -> None:
        try:
            await self._call.write(request)
        except CallFailed as failure:
            raise _error(failure, self._target) from failure
        except asyncio.CancelledError:
            _raise_unless_cancelled(self._target)
            raise

    async def read(self) -> Any:
        try:
            return await self._call.read()
        except CallFailed as failure:
            raise _error(failure, self._target) from failure
        except asyncio.CancelledError:
            _raise_unless_cancelled(self._target)
            raise

    def done(self) -> bool:
        return self._call.done()

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._call.add_done_callback(function)

    def cancel(self) -> None:
        self._call.cancel()


def _error(failure: CallFailed, target: str) -> KlammError:
    """Returns the error for the caller of a failed call. Raises CancelledError if the caller was cancelled, because the
    transport turned that into a status."""
    raise_if_cancelled()
    return failure.error(target)


def _raise_unless_cancelled(target: str) -> None:
    """Raises NetworkError if the connection ended the call. Returns if the caller was cancelled, which looks the same
    to the call."""
    if not is_cancelled():
        raise _NetworkError(f"{target}: the connection was closed, or the server given up") from None
