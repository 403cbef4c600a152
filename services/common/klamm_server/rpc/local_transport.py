"""A transport for a process with several servers: calls to its own listeners stay in the process.

All other calls go by another transport. A call that stays here has the caller, the metadata, the deadline and the
limits that it would have over gRPC, and the handler runs in a task of its own. Messages are passed as they are. So
neither side may change a message that it was given.

A listener where clients log in is never called here, because a login is bound to a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, Final, TypeVar

from klamm import tracing
from klamm.ordered_set import OrderedSet
from klamm.rpc.call_metadata import CALL_METADATA, Metadata
from klamm.rpc.cancellation import is_cancelled
from klamm.rpc.options import ChannelOptions
from klamm.rpc.status import CallFailed, Status
from klamm.rpc.transport import Channel, StreamCall, UnaryCall
from klamm.wire.service import Method
from klamm_server.net.listeners import CAME_BY
from klamm_server.rpc.refusals import failure_of
from klamm_server.rpc.transport import Callers, Handler, ServerLimits, ServerTransport, TransportServer
from klamm_server.security.audit.decisions import Call
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.server_tls import ServerTls
from klamm_server.security.session import CALL, CALLER

CallT = TypeVar("CallT", bound=UnaryCall | StreamCall)

LOOPBACKS: Final = ("127.0.0.1", "localhost", "[::1]")
_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "[::]"})
_PEER: Final = "ipv4:127.0.0.1:0"
"""The address of every caller, in gRPC's format."""


class LocalTransport:
    """A `klamm_server.rpc.transport.ServerTransport` for all servers of the process. `outer` makes the other calls."""

    def __init__(self, outer: ServerTransport) -> None:
        self._outer = outer
        self._listeners: dict[str, LocalListener] = {}
        """The listeners by each address that reaches them."""

    def channel(self, address: str, options: ChannelOptions) -> LocalChannel:
        return LocalChannel(self, address, lambda: self._outer.channel(address, options))

    def server(self, limits: ServerLimits) -> LocalServer:
        return LocalServer(self, self._outer.server(limits), limits)

    def add(self, listener: LocalListener, addresses: Iterable[str]) -> None:
        """Calls to these addresses, which are host:port, reach the listener."""
        self._listeners.update(dict.fromkeys(addresses, listener))

    def add_address(self, name: str, address: str) -> None:
        """Adds an address at which others reach the listener of that name, if calls to it stay in the process."""
        listener = next((listener for listener in self._listeners.values() if listener.name == name), None)
        if listener is not None:
            self.add(listener, [address])

    def remove(self, listener: LocalListener) -> None:
        self._listeners = {address: other for address, other in self._listeners.items() if other is not listener}

    def find(self, address: str) -> LocalListener | None:
        return self._listeners.get(address)


class LocalListener:
    """One listener of this process, and the calls that it answers here."""

    def __init__(
        self,
        name: str,
        handlers: Sequence[Handler],
        refusal: Callable[[str, str], str | None] | None,
        tls: ServerTls | None,
        request_max_bytes: int,
    ) -> None:
        self.name = name
        self._handlers = {handler.method.path: handler for handler in handlers}
        self._refusal = refusal
        self._tls = tls
        self._request_max_bytes = request_max_bytes
        self._tasks: OrderedSet[asyncio.Task[Any]] = OrderedSet()

    def handler(self, method: Method) -> Handler:
        """Returns the handler of a method. Raises CallFailed(UNIMPLEMENTED)."""
        handler = self._handlers.get(method.path)
        if handler is None:
            text = None if self._refusal is None else self._refusal(method.path, self.name)
            raise CallFailed(Status.UNIMPLEMENTED, text or f"{method.path} is not served here")
        return handler

    def check_size(self, request: Any) -> None:
        """Raises CallFailed(RESOURCE_EXHAUSTED) if the request is larger than the listener accepts."""
        size_bytes = len(request) if isinstance(request, bytes | memoryview) else request.ByteSize()
        if size_bytes > self._request_max_bytes:
            raise CallFailed(
                Status.RESOURCE_EXHAUSTED,
                f"Received message larger than max ({size_bytes} vs. {self._request_max_bytes})",
            )

    def certificate(self) -> bytes | None:
        """Returns the certificate that a server of this process shows to others, or None if it shows none."""
        if self._tls is None or self._tls.settings.ssl_client_auth != "required":
            return None
        return self._tls.own_certificate.encode()

    def run(self, answer: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a call as a task of its own."""
        task = asyncio.create_task(answer)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def stop(self, grace_s: float) -> None:
        """Waits for the calls under way, and then cancels those that still run."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have gone away


class LocalServer:
    """A `klamm_server.rpc.transport.TransportServer` whose listeners are also called within the process."""

    def __init__(self, transport: LocalTransport, outer: TransportServer, limits: ServerLimits) -> None:
        self._transport = transport
        self._outer = outer
        self._limits = limits
        self._listeners: list[LocalListener] = []

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
        bound = await self._outer.listen(bind, port, listener, handlers, tls, callers, refusal)
        if callers is None:
            local = LocalListener(listener, handlers, refusal, tls, self._limits.receive_max_bytes)
            self._listeners.append(local)
            hosts = LOOPBACKS if bind in _EVERY_INTERFACE else (bind,)
            self._transport.add(local, (f"{host}:{bound}" for host in hosts))
        return bound

    async def report_health(self, is_serving: bool) -> None:
        await self._outer.report_health(is_serving)

    async def stop(self, grace_s: float) -> None:
        for listener in self._listeners:
            self._transport.remove(listener)
        stops = (listener.stop(grace_s) for listener in self._listeners)
        await asyncio.gather(self._outer.stop(grace_s), *stops)


class LocalChannel:
    """A `klamm.rpc.transport.Channel`. Each call looks whether the address is one of this process."""

    def __init__(self, transport: LocalTransport, address: str, make_outer: Callable[[], Channel]) -> None:
        self._transport = transport
        self._address = address
        self._make_outer = make_outer
        self._outer: Channel | None = None
        self._under_way: OrderedSet[Any] = OrderedSet()

    def unary(self, method: Method) -> Callable[[Any, int], UnaryCall]:
        def begin(request: Any, timeout_ms: int) -> UnaryCall:
            listener = self._transport.find(self._address)
            if listener is None:
                return self._beyond().unary(method)(request, timeout_ms)
            return self._hold(LocalCall(listener, method, request, timeout_ms))

        return begin

    def stream(self, method: Method) -> Callable[[Any, int | None], StreamCall]:
        def begin(request: Any, timeout_ms: int | None) -> StreamCall:
            listener = self._transport.find(self._address)
            if listener is None:
                return self._beyond().stream(method)(request, timeout_ms)
            return self._hold(LocalStream(listener, method, request, timeout_ms))

        return begin

    async def close(self) -> None:
        for call in list(self._under_way):
            call.cancel()
        if self._outer is not None:
            await self._outer.close()

    def _beyond(self) -> Channel:
        if self._outer is None:
            self._outer = self._make_outer()
        return self._outer

    def _hold(self, call: CallT) -> CallT:
        self._under_way.add(call)
        call.add_done_callback(lambda _: self._under_way.discard(call))
        return call


class _Context:
    """A `klamm.wire.calls.CallContext`."""

    def __init__(self, certificate: bytes | None, metadata: Metadata) -> None:
        self._certificate = certificate
        self._metadata = metadata
        self._on_done: list[Callable[[Any], None]] = []

    def peer(self) -> str:
        return _PEER

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None:
        return self._metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        """Returns what gRPC says of a connection with the servers' certificate."""
        return {} if self._certificate is None else {"x509_pem_cert": [self._certificate]}

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._on_done.append(function)

    def finish(self) -> None:
        for function in self._on_done:
            function(self)


def _enter(listener: LocalListener) -> _Context:
    """Makes the context of a call, and hides the caller's own variables from the handler. Call this in the call's
    task."""
    context = _Context(listener.certificate(), CALL_METADATA.get())
    CAME_BY.set(listener.name)
    LOGGED_IN.set(None)
    CALLER.set(None)
    CALL.set(Call())
    CALL_METADATA.set(())
    return context


class LocalCall:
    """A `klamm.rpc.transport.UnaryCall`: the handler's task."""

    def __init__(self, listener: LocalListener, method: Method, request: Any, timeout_ms: int) -> None:
        self._task = listener.run(_answer(listener, method, request))
        self._has_expired = False
        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._expire)
        self._task.add_done_callback(lambda _: timer.cancel())

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait().__await__()

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._task.add_done_callback(function)

    def cancel(self) -> None:
        self._task.cancel()

    def _expire(self) -> None:
        self._has_expired = True
        self._task.cancel()

    async def _wait(self) -> Any:
        try:
            return await self._task
        except asyncio.CancelledError:
            if self._has_expired and not is_cancelled():
                raise CallFailed(Status.DEADLINE_EXCEEDED) from None
            raise


async def _answer(listener: LocalListener, method: Method, request: Any) -> Any:
    context = _enter(listener)
    try:
        handler = listener.handler(method)
        listener.check_size(request)
        with tracing.span(method.path):
            return await handler.answer(request, context)
    except Exception as error:
        raise failure_of(method.path, error) from error
    finally:
        context.finish()


class LocalStream:
    """A `klamm.rpc.transport.StreamCall`. One message at most waits in each direction."""

    def __init__(self, listener: LocalListener, method: Method, request: Any, timeout_ms: int | None) -> None:
        self._listener = listener
        self._method = method
        self._requests: asyncio.Queue[Any] = asyncio.Queue(1)
        self._answers: asyncio.Queue[Any] = asyncio.Queue(1)
        self._failure: CallFailed | None = None
        self._task = listener.run(self._serve(request, timeout_ms))

    async def write(self, request: Any) -> None:
        if self._task.done():
            raise self._failure or CallFailed(Status.UNAVAILABLE, "the call is over")
        putting = asyncio.ensure_future(self._requests.put(request))
        try:
            await asyncio.wait({self._task, putting}, return_when=asyncio.FIRST_COMPLETED)
            if not putting.done():
                raise self._failure or CallFailed(Status.UNAVAILABLE, "the call is over")
        finally:
            putting.cancel()

    async def read(self) -> Any:
        if not self._answers.empty():
            return self._answers.get_nowait()
        getting = asyncio.ensure_future(self._answers.get())
        try:
            await asyncio.wait({self._task, getting}, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            if not self._answers.empty():
                return self._answers.get_nowait()
            if self._failure is not None:
                raise self._failure
            return None
        finally:
            getting.cancel()

    def done(self) -> bool:
        return self._task.done()

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._task.add_done_callback(function)

    def cancel(self) -> None:
        self._task.cancel()

    async def _serve(self, request: Any, timeout_ms: int | None) -> None:
        context = _enter(self._listener)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._pass_on(request, context)
        except TimeoutError:
            self._failure = CallFailed(Status.DEADLINE_EXCEEDED)
        except asyncio.CancelledError:
            self._failure = CallFailed(Status.CANCELLED)
            raise
        except Exception as error:  # noqa: BLE001 - the edge
            self._failure = failure_of(self._method.path, error)
        finally:
            context.finish()

    async def _pass_on(self, request: Any, context: _Context) -> None:
        handler = self._listener.handler(self._method)
        if self._method.client_streaming:
            request = self._sent()
        else:
            self._listener.check_size(request)
        if not self._method.server_streaming:
            await self._answers.put(await handler.answer(request, context))
            return
        async with contextlib.aclosing(handler.answer(request, context)) as answers:
            async for answer in answers:
                await self._answers.put(answer)

    async def _sent(self) -> AsyncIterator[Any]:
        while True:
            request = await self._requests.get()
            self._listener.check_size(request)
            yield request
