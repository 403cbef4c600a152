"""A transport within one process. It serializes messages and passes them on, without sockets, threads or gRPC."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from klamm.rpc.options import ChannelOptions
from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method
from klamm_server.net.listeners import CAME_BY
from klamm_server.rpc.refusals import failure_of
from klamm_server.rpc.transport import Callers, Handler, ServerLimits
from klamm_server.security.server_tls import ServerTls

FIRST_PORT = 50_000
_UNREACHABLE = CallFailed(Status.UNAVAILABLE, "nobody listens there")


class MemoryTransport:
    """A `klamm_server.rpc.transport.ServerTransport` for all servers and clients of a test. It has port numbers of its
    own."""

    def __init__(self) -> None:
        self.listeners: dict[int, MemoryListener] = {}
        self.calls: list[str] = []
        """The paths called, in order."""
        self._next_port = FIRST_PORT

    def channel(self, address: str, options: ChannelOptions) -> MemoryChannel:
        return MemoryChannel(self, int(address.rpartition(":")[2]))

    def server(self, limits: ServerLimits) -> MemoryServer:
        return MemoryServer(self)

    def add(self, port: int, listener: MemoryListener) -> int:
        if not port:
            port, self._next_port = self._next_port, self._next_port + 1
        assert port not in self.listeners, port
        self.listeners[port] = listener
        return port

    def find(self, port: int, method: Method) -> tuple[MemoryListener, Handler]:
        self.calls.append(method.path)
        listener = self.listeners.get(port)
        if listener is None:
            raise _UNREACHABLE
        handler = listener.handlers.get(method.path)
        if handler is None:
            text = None if listener.refusal is None else listener.refusal(method.path, listener.name)
            raise CallFailed(Status.UNIMPLEMENTED, text or method.path)
        return listener, handler


class MemoryListener:
    """One listener of a server, and the calls it answers."""

    def __init__(
        self, name: str, handlers: Sequence[Handler], refusal: Callable[[str, str], str | None] | None
    ) -> None:
        self.name = name
        self.refusal = refusal
        self.handlers = {handler.method.path: handler for handler in handlers}
        self.calls: set[asyncio.Task[Any]] = set()

    def run(self, answer: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a call as a task of its own."""
        task = asyncio.create_task(answer)
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        return task


class MemoryServer:
    """A `klamm_server.rpc.transport.TransportServer`."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.is_serving = False
        self._transport = transport
        self._ports: list[int] = []

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
        assert tls is None, "there is nothing to read along"
        self._ports.append(self._transport.add(port, MemoryListener(listener, handlers, refusal)))
        return self._ports[-1]

    async def report_health(self, is_serving: bool) -> None:
        self.is_serving = is_serving

    async def stop(self, grace_s: float) -> None:
        calls: set[asyncio.Task[Any]] = set()
        for port in self._ports:
            calls |= self._transport.listeners.pop(port).calls
        if calls:
            await asyncio.wait(calls, timeout=grace_s)
        for call in calls:
            call.cancel()


class _Context:
    """A `klamm.wire.calls.CallContext`."""

    def __init__(self) -> None:
        self._on_done: list[Callable[[Any], None]] = []

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._on_done.append(function)

    def finish(self) -> None:
        for function in self._on_done:
            function(self)


class MemoryChannel:
    """A `klamm.rpc.transport.Channel`."""

    def __init__(self, transport: MemoryTransport, port: int) -> None:
        self._transport = transport
        self._port = port
        self._under_way: set[Any] = set()

    def unary(self, method: Method) -> Callable[[Any, int], asyncio.Task[Any]]:
        def begin(request: Any, timeout_ms: int) -> asyncio.Task[Any]:
            return self._hold(asyncio.create_task(self._ask(method, request, timeout_ms)))

        return begin

    def stream(self, method: Method) -> Callable[[Any, int | None], MemoryStream]:
        def begin(request: Any, timeout_ms: int | None) -> MemoryStream:
            stream = MemoryStream(method)
            stream.begin(self._transport, self._port, request, timeout_ms)
            return self._hold(stream)

        return begin

    async def close(self) -> None:
        for call in list(self._under_way):
            call.cancel()

    def _hold(self, call: Any) -> Any:
        self._under_way.add(call)
        call.add_done_callback(lambda _: self._under_way.discard(call))
        return call

    async def _ask(self, method: Method, request: Any, timeout_ms: int) -> Any:
        listener, handler = self._transport.find(self._port, method)
        answering = listener.run(_answer(listener.name, handler, _decoded_request(method, request)))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answering
        except TimeoutError:
            raise CallFailed(Status.DEADLINE_EXCEEDED) from None
        except asyncio.CancelledError:
            if answering.cancelled() and not _is_cancelled():
                raise CallFailed(Status.UNAVAILABLE, "the server stopped") from None
            raise


async def _answer(listener: str, handler: Handler, request: Any) -> Any:
    CAME_BY.set(listener)
    context = _Context()
    before = _decoded_request(handler.method, request)
    try:
        answer = _decoded_answer(handler.method, await handler.answer(request, context))
        assert request == before, f"{handler.method.path} changed its request, which LocalTransport does not copy"
        return answer
    except Exception as error:
        raise failure_of(handler.method.path, error) from error
    finally:
        context.finish()


class MemoryStream:
    """A `klamm.rpc.transport.StreamCall`. One message at most waits in each direction."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._requests: asyncio.Queue[Any] = asyncio.Queue(1)
        self._answers: asyncio.Queue[Any] = asyncio.Queue(1)
        self._failure: CallFailed | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, transport: MemoryTransport, port: int, request: Any, timeout_ms: int | None) -> None:
        try:
            listener, handler = transport.find(port, self._method)
        except CallFailed as failure:
            self._task = asyncio.create_task(self._fail(failure))
            return
        self._task = listener.run(self._serve(listener.name, handler, request, timeout_ms))

    async def write(self, request: Any) -> None:
        assert self._task is not None
        putting = asyncio.ensure_future(self._requests.put(_decoded_request(self._method, request)))
        try:
            await asyncio.wait({self._task, putting}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                raise self._failure or CallFailed(Status.UNAVAILABLE, "the call is over")
        finally:
            putting.cancel()

    async def read(self) -> Any:
        assert self._task is not None
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
        return self._task is not None and self._task.done()

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        assert self._task is not None
        self._task.add_done_callback(function)

    def cancel(self) -> None:
        assert self._task is not None
        self._task.cancel()

    async def _fail(self, failure: CallFailed) -> None:
        self._failure = failure

    async def _serve(self, listener: str, handler: Handler, request: Any, timeout_ms: int | None) -> None:
        CAME_BY.set(listener)
        context = _Context()
        streams = self._method.client_streaming
        asked = self._sent() if streams else _decoded_request(self._method, request)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                if not self._method.server_streaming:
                    await self._answers.put(_decoded_answer(self._method, await handler.answer(asked, context)))
                    return
                async with contextlib.aclosing(handler.answer(asked, context)) as answers:
                    async for answer in answers:
                        await self._answers.put(_decoded_answer(self._method, answer))
        except TimeoutError:
            self._failure = CallFailed(Status.DEADLINE_EXCEEDED)
        except asyncio.CancelledError:
            self._failure = CallFailed(Status.CANCELLED)
            raise
        except Exception as error:  # noqa: BLE001 - the edge
            self._failure = failure_of(self._method.path, error)
        finally:
            context.finish()

    async def _sent(self) -> AsyncIterator[Any]:
        while True:
            yield await self._requests.get()


def _decoded_request(method: Method, request: Any) -> Any:
    if method.request_serializer is None or method.request_deserializer is None:
        return bytes(request)
    return method.request_deserializer(method.request_serializer(request))


def _decoded_answer(method: Method, answer: Any) -> Any:
    if method.response_serializer is None or method.response_deserializer is None:
        return bytes(answer)
    return method.response_deserializer(method.response_serializer(answer))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
