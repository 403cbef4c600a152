"""The transport of calls in a simulated world. It stands in for gRPC, over the connections of `network.py`.

| what gRPC does                                   | what this transport does                                          |
|--------------------------------------------------|-------------------------------------------------------------------|
| the calls of a channel share a connection        | the same; the messages of a connection arrive in order            |
| a channel connects at its first call             | the same; calls wait for the first attempt                        |
| after a failed attempt, calls fail at once       | the same, until an attempt succeeds; back-off with jitter         |
| a lost connection ends its calls                 | with UNAVAILABLE, whether or not their handlers ran               |
| deadlines and cancellation                       | the client ends at once, the handler when the server hears of it  |
| flow control                                     | a writer waits while 64 KiB of its messages are unread            |
| keepalive                                        | finds cut links and paused servers while there are calls          |
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

from klamm.rpc.call_metadata import CALL_METADATA, Metadata
from klamm.rpc.options import ChannelOptions
from klamm.rpc.status import CallFailed, Status
from klamm.wire.service import Method
from klamm_server.net.listeners import CAME_BY
from klamm_server.rpc.refusals import failure_of
from klamm_server.rpc.transport import Callers, Handler, ServerLimits
from klamm_server.security.server_tls import ServerTls
from tests.world.network import CLOSED, CONTROL_BYTES, Connection, Network
from tests.world.process import SimProcess

WINDOW_BYTES: Final = 65_536
"""The limit of the bytes of a call's messages, in one direction, that are sent and not read."""
ACKNOWLEDGED_BYTES: Final = 16_384
"""The bytes after which the receiver tells the sender that it has read them."""
US_PER_MS: Final = 1_000
CallT = TypeVar("CallT", bound="asyncio.Task[Any] | SimStream")
_CANCELLED: Final = CallFailed(Status.CANCELLED, "the call was cancelled")


class SimTransport:
    """A `klamm_server.rpc.transport.ServerTransport` of one process."""

    def __init__(self, network: Network, process: SimProcess) -> None:
        self._network = network
        self._process = process

    def channel(self, address: str, options: ChannelOptions) -> SimChannel:
        return SimChannel(self._network, self._process, address, options)

    def server(self, limits: ServerLimits) -> SimServer:
        return SimServer(self._network, self._process, limits)


# Messages of a call, in both directions


class Inbox:
    """The messages of a call that have arrived, and its end."""

    def __init__(self, acknowledge: Callable[[int], object]) -> None:
        self.failure: CallFailed | None = None
        self.is_over = False
        self._messages: deque[bytes] = deque()
        self._acknowledge = acknowledge
        self._read_bytes = 0
        self._waiter: asyncio.Future[None] | None = None

    def put(self, message: bytes) -> None:
        self._messages.append(message)
        self._wake()

    def end(self, failure: CallFailed | None) -> None:
        """Ends the messages, with an error or without. Messages that have arrived can still be read."""
        if not self.is_over:
            self.is_over, self.failure = True, failure
            self._wake()

    async def read(self) -> bytes | None:
        """Returns the next message, or None after the last one. Raises CallFailed."""
        while not self._messages:
            if self.is_over:
                if self.failure is not None:
                    raise CallFailed(self.failure.status, self.failure.details)
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self._messages.popleft()
        self._read_bytes += len(message)
        if self._read_bytes >= ACKNOWLEDGED_BYTES:
            self._acknowledge(self._read_bytes)
            self._read_bytes = 0
        return message

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Window:
    """The bytes that a sender may still send before the other side reads. It opens when there is a connection."""

    def __init__(self) -> None:
        self.is_open = False
        self._unread_bytes = 0
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Waits for a connection, and while too much is unread, or until the call is over."""
        while (not self.is_open or self._unread_bytes > WINDOW_BYTES) and not self._is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def open(self) -> None:
        self.is_open = True
        self._wake()

    def take(self, size_bytes: int) -> None:
        self._unread_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self._unread_bytes -= size_bytes
        self._wake()

    def end(self) -> None:
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


# Clients


class SimChannel:
    """A `klamm.rpc.transport.Channel`."""

    def __init__(self, network: Network, process: SimProcess, address: str, options: ChannelOptions) -> None:
        host, _, port = address.rpartition(":")
        self.process = process
        self.options = options
        self._network = network
        self._host, self._port = host, int(port)
        self._link: ClientLink | None = None
        self._waiting: dict[ClientCall, None] = {}
        """The calls that wait for a connection."""
        self._failure = ""
        """Why the last attempt to connect failed, or "" if it did not."""
        self._failures_in_a_row = 0
        self._is_connecting = self._is_closed = False
        self._under_way: dict[Any, None] = {}

    def unary(self, method: Method) -> Callable[[Any, int], asyncio.Task[Any]]:
        def begin(request: Any, timeout_ms: int) -> asyncio.Task[Any]:
            call = self._begin(method, timeout_ms)
            call.send(_encoded(method.request_serializer, request))
            task = self.process.loop.create_task(_only_answer(call), name=f"call {method.path}")
            task.add_done_callback(lambda _: call.cancel())
            return self._hold(task)

        return begin

    def stream(self, method: Method) -> Callable[[Any, int | None], SimStream]:
        def begin(request: Any, timeout_ms: int | None) -> SimStream:
            call = self._begin(method, timeout_ms)
            if not method.client_streaming:
                call.send(_encoded(method.request_serializer, request))
            return self._hold(SimStream(call))

        return begin

    async def close(self) -> None:
        self._is_closed = True
        for call in list(self._under_way):
            call.cancel()
        self.leave_link()

    def _hold(self, call: CallT) -> CallT:
        self._under_way[call] = None
        call.add_done_callback(lambda _: self._under_way.pop(call, None))
        return call

    def leave_link(self) -> None:
        """Uses another connection for the next call, because the server is stopping or the channel is closed."""
        link, self._link = self._link, None
        if link is not None:
            link.retire()

    def on_link_lost(self, link: ClientLink) -> None:
        if self._link is link:
            self._link = None

    def _begin(self, method: Method, timeout_ms: int | None) -> ClientCall:
        call = ClientCall(self.process, method, timeout_ms, self.options.receive_max_bytes)
        if self._is_closed:
            call.end(CallFailed(Status.CANCELLED, "the channel is closed"))
        elif self._link is not None:
            self._link.begin(call)
        elif self._failure:
            call.end(CallFailed(Status.UNAVAILABLE, self._failure))
        else:
            self._waiting[call] = None
            call.at_end.append(lambda: self._waiting.pop(call, None))
            self._connect()
        return call

    def _connect(self) -> None:
        if not self._is_connecting and not self._is_closed:
            self._is_connecting = True
            timeout_us = self.options.connection_setup_timeout_ms * US_PER_MS
            self._network.connect(self.process, self._host, self._port, timeout_us, self._on_connected)

    def _on_connected(self, result: Connection | str) -> None:
        self._is_connecting = False
        if self._is_closed:
            if isinstance(result, Connection):
                result.close(0)
            return
        waiting, self._waiting = self._waiting, {}
        if isinstance(result, str):
            self._failure = f"failed to connect to {self._host}:{self._port}: {result}"
            for call in waiting:
                call.end(CallFailed(Status.UNAVAILABLE, self._failure))
            self._plan_attempt()
            return
        self._failure, self._failures_in_a_row = "", 0
        self._link = ClientLink(self, result)
        for call in waiting:
            self._link.begin(call)

    def _plan_attempt(self) -> None:
        first_ms, max_ms = self.options.reconnect_backoff_ms, self.options.reconnect_backoff_max_ms
        delay_ms = min(max_ms, first_ms * 1.6**self._failures_in_a_row) * self._network.world.rng.uniform(0.8, 1.2)
        self._failures_in_a_row += 1
        self.process.loop.call_later(delay_ms / 1000, self._connect, context=self.process.context.copy())


class ClientLink:
    """The client's end of a connection, and the calls on it."""

    def __init__(self, channel: SimChannel, connection: Connection) -> None:
        self._channel = channel
        self._connection = connection
        self._calls: dict[int, ClientCall] = {}
        self._numbers = itertools.count(1)
        self._is_retired = False
        connection.users[0] = self
        options = channel.options
        connection.keepalive_us = (options.keepalive_time_ms * US_PER_MS, options.keepalive_timeout_ms * US_PER_MS)
        connection.needs_keepalive = lambda: bool(self._calls)

    def begin(self, call: ClientCall) -> None:
        number = next(self._numbers)
        self._calls[number] = call
        call.at_end.append(lambda: self._on_end(number))
        call.use(lambda kind, size_bytes, *what: self._send(number, kind, size_bytes, *what))

    def retire(self) -> None:
        """Closes the connection when its calls have ended."""
        self._is_retired = True
        if not self._calls:
            self._connection.close(0)

    def receive(self, number: int, kind: str, what: Any) -> None:
        """Handles a message of the server."""
        if kind == "goaway":
            self._channel.leave_link()
            return
        call = self._calls.get(number)
        if call is None:
            return
        if kind == "message":
            call.receive(what)
        elif kind == "read":
            call.window.give_back(what)
        else:
            call.end(what)

    def on_broken(self, why: str) -> None:
        self._channel.on_link_lost(self)
        for call in list(self._calls.values()):
            call.end(CallFailed(Status.UNAVAILABLE, why))

    def _on_end(self, number: int) -> None:
        del self._calls[number]
        if self._is_retired and not self._calls:
            self._connection.close(0)

    def _send(self, number: int, kind: str, size_bytes: int, *what: Any) -> None:
        self._connection.send(0, size_bytes + CONTROL_BYTES, _to_server, self._connection, number, kind, what)


def _to_server(connection: Connection, number: int, kind: str, what: tuple[Any, ...]) -> None:
    connection.note(number, kind, *what)
    link = connection.users[1]
    if isinstance(link, ServerLink):
        link.receive(number, kind, what)


def _to_client(connection: Connection, number: int, kind: str, what: Any) -> None:
    connection.note(number, kind, what)
    link = connection.users[0]
    if isinstance(link, ClientLink):
        link.receive(number, kind, what)


class ClientCall:
    """The client's side of a call."""

    def __init__(self, process: SimProcess, method: Method, timeout_ms: int | None, receive_max_bytes: int) -> None:
        self.method = method
        self.at_end: list[Callable[[], object]] = []
        self.window = Window()
        self.is_over = False
        self._receive_max_bytes = receive_max_bytes
        self._inbox = Inbox(self._acknowledge)
        self._send: Callable[..., object] | None = None
        self._unsent: list[bytes] = []
        self._timeout_ms = timeout_ms
        self._metadata = CALL_METADATA.get()
        self._timer = None
        if timeout_ms is not None:
            self._timer = process.loop.call_later(timeout_ms / 1000, self._expire, context=process.context.copy())

    def use(self, send: Callable[..., object]) -> None:
        """Begins the call on a connection, on which `send` sends."""
        self._send = send
        send("begin", len(self.method.path), self.method.path, self._timeout_ms, self._metadata)
        for message in self._unsent:
            send("message", len(message), message)
        self._unsent.clear()
        self.window.open()

    def send(self, message: bytes) -> None:
        self.window.take(len(message))
        if self._send is None:
            self._unsent.append(message)
        elif not self.is_over:
            self._send("message", len(message), message)

    def receive(self, message: bytes) -> None:
        if 0 <= self._receive_max_bytes < len(message):
            self.cancel(_too_large(len(message), self._receive_max_bytes))
        else:
            self._inbox.put(message)

    async def read(self) -> Any:
        """Returns the next answer, or None after the last one. Raises CallFailed."""
        message = await self._inbox.read()
        return None if message is None else _decoded(self.method.response_deserializer, message)

    @property
    def failure(self) -> CallFailed | None:
        return self._inbox.failure

    def end(self, failure: CallFailed | None) -> None:
        """The call is over on this side."""
        if self.is_over:
            return
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self.window.end()
        self._inbox.end(failure)
        for do in list(self.at_end):
            do()

    def cancel(self, failure: CallFailed = _CANCELLED) -> None:
        """Ends the call on this side, and asks the server to end it."""
        if not self.is_over:
            if self._send is not None:
                self._send("cancel", 0)
            self.end(failure)

    def _expire(self) -> None:
        self.cancel(CallFailed(Status.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def _acknowledge(self, size_bytes: int) -> None:
        if self._send is not None and not self.is_over:
            self._send("read", 0, size_bytes)


async def _only_answer(call: ClientCall) -> Any:
    """Returns the answer of a call that has one. Raises CallFailed."""
    answer = await call.read()
    if answer is None:
        raise CallFailed(Status.INTERNAL, "the call has no answer")
    await call.read()
    return answer


class SimStream:
    """A `klamm.rpc.transport.StreamCall`."""

    def __init__(self, call: ClientCall) -> None:
        self._call = call
        self._was_cancelled = False

    async def write(self, request: Any) -> None:
        await self._call.window.wait()
        self._check()
        self._call.send(_encoded(self._call.method.request_serializer, request))
        await self._call.window.wait()

    async def read(self) -> Any:
        try:
            return await self._call.read()
        except CallFailed:
            if self._was_cancelled:
                raise asyncio.CancelledError from None
            raise
        except asyncio.CancelledError:
            self._call.cancel()
            raise

    def done(self) -> bool:
        return self._call.is_over

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        if self._call.is_over:
            function(self)
        else:
            self._call.at_end.append(lambda: function(self))

    def cancel(self) -> None:
        self._was_cancelled = self._was_cancelled or not self._call.is_over
        self._call.cancel()

    def _check(self) -> None:
        if self._was_cancelled:
            raise asyncio.CancelledError
        if self._call.is_over:
            raise self._call.failure or CallFailed(Status.UNAVAILABLE, "the call is over")


# Servers


class SimServer:
    """A `klamm_server.rpc.transport.TransportServer`."""

    def __init__(self, network: Network, process: SimProcess, limits: ServerLimits) -> None:
        self.limits = limits
        self.is_serving = False
        self._network = network
        self._process = process
        self._listeners: list[tuple[int, SimListener]] = []

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
        assert tls is None, "the world has no TLS"
        assert callers is None, "the world has no logins over this transport"
        made = SimListener(self._process, listener, handlers, refusal, self.limits)
        port = self._network.listen(port, made)
        self._listeners.append((port, made))
        return port

    async def report_health(self, is_serving: bool) -> None:
        self.is_serving = is_serving

    async def stop(self, grace_s: float) -> None:
        for port, listener in self._listeners:
            self._network.leave(port, listener)
        await asyncio.gather(*(listener.stop(grace_s) for _, listener in self._listeners))
        self._listeners.clear()


class SimListener:
    """One listener of a server."""

    def __init__(
        self,
        process: SimProcess,
        name: str,
        handlers: Sequence[Handler],
        refusal: Callable[[str, str], str | None] | None,
        limits: ServerLimits,
    ) -> None:
        self.process = process
        self.name = name
        self.limits = limits
        self.tasks: dict[asyncio.Task[None], None] = {}
        self.links: dict[ServerLink, None] = {}
        self._refusal = refusal
        self._handlers = {handler.method.path: handler for handler in handlers}

    def accept(self, connection: Connection) -> None:
        self.links[ServerLink(self, connection)] = None

    def handler(self, path: str) -> Handler:
        """Returns the handler of a method. Raises CallFailed."""
        if len(self.tasks) > self.limits.concurrent_calls_max:
            raise CallFailed(Status.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded")
        handler = self._handlers.get(path)
        if handler is None:
            text = None if self._refusal is None else self._refusal(path, self.name)
            raise CallFailed(Status.UNIMPLEMENTED, text or "Method not found!")
        return handler

    async def stop(self, grace_s: float) -> None:
        for link in self.links:
            link.send_away()
        if self.tasks:
            await asyncio.wait(list(self.tasks), timeout=grace_s)
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in list(self.links):
            link.close()


class ServerLink:
    """The server's end of a connection, and the calls on it."""

    def __init__(self, listener: SimListener, connection: Connection) -> None:
        self.listener = listener
        self.peer = f"ipv4:{connection.peer_host(1).address}:{connection.port}"
        self._connection = connection
        self._calls: dict[int, ServerCall] = {}
        connection.users[1] = self

    def receive(self, number: int, kind: str, what: tuple[Any, ...]) -> None:
        """Handles a message of the client."""
        if kind == "begin":
            self._begin(number, *what)
            return
        call = self._calls.get(number)
        if call is None:
            return
        if kind == "message":
            call.inbox.put(what[0])
        elif kind == "read":
            call.window.give_back(what[0])
        else:
            call.cancel()

    def send(self, number: int, kind: str, size_bytes: int, what: Any = None) -> None:
        self._connection.send(1, size_bytes + CONTROL_BYTES, _to_client, self._connection, number, kind, what)

    def send_away(self) -> None:
        """Asks the client to begin no more calls here."""
        self.send(0, "goaway", 0)

    def close(self) -> None:
        self._connection.close(1)
        self.on_broken(CLOSED)

    def on_broken(self, why: str) -> None:
        self.listener.links.pop(self, None)
        for call in list(self._calls.values()):
            call.cancel()

    def _begin(self, number: int, path: str, timeout_ms: int | None, metadata: Metadata) -> None:
        process = self.listener.process
        call = self._calls[number] = ServerCall(self, number, path, metadata)
        context = process.context.copy()
        task = process.loop.create_task(call.run(), name=f"handler {path}", context=context)
        call.task = task
        self.listener.tasks[task] = None
        timer = None
        if timeout_ms is not None:
            timer = process.loop.call_later(timeout_ms / 1000, call.cancel, context=context.copy())

        def on_done(_: object) -> None:
            del self._calls[number], self.listener.tasks[task]
            if timer is not None:
                timer.cancel()

        task.add_done_callback(on_done)


class ServerCall:
    """The server's side of a call. It is also the `klamm.wire.calls.CallContext` of its handler."""

    def __init__(self, link: ServerLink, number: int, path: str, metadata: Metadata) -> None:
        self.inbox = Inbox(lambda size_bytes: link.send(number, "read", 0, size_bytes))
        self.window = Window()
        self.window.open()
        self.task: asyncio.Task[None] | None = None
        self._link = link
        self._number = number
        self._path = path
        self._metadata = metadata
        self._at_end: list[Callable[[Any], None]] = []

    def cancel(self) -> None:
        """Ends the handler. A handler that was cancelled answers nothing."""
        assert self.task is not None
        self.task.cancel()

    async def run(self) -> None:
        CAME_BY.set(self._link.listener.name)
        try:
            await self._answer(self._link.listener.handler(self._path))
        except Exception as error:  # noqa: BLE001 - the edge
            self._link.send(self._number, "end", 0, failure_of(self._path, error))
        else:
            self._link.send(self._number, "end", 0, None)
        finally:
            self.window.end()
            for do in self._at_end:
                do(self)

    async def _answer(self, handler: Handler) -> None:
        method = handler.method
        request = self._requests(method) if method.client_streaming else await self._request(method)
        if not method.server_streaming:
            await self._send(method, await handler.answer(request, self))
            return
        async with contextlib.aclosing(handler.answer(request, self)) as answers:
            async for answer in answers:
                await self._send(method, answer)

    async def _send(self, method: Method, answer: Any) -> None:
        message = _encoded(method.response_serializer, answer)
        self.window.take(len(message))
        self._link.send(self._number, "message", len(message), message)
        await self.window.wait()

    async def _request(self, method: Method) -> Any:
        message = await self.inbox.read()
        assert message is not None
        limit_bytes = self._link.listener.limits.receive_max_bytes
        if 0 <= limit_bytes < len(message):
            raise _too_large(len(message), limit_bytes)
        return _decoded(method.request_deserializer, message)

    async def _requests(self, method: Method) -> AsyncIterator[Any]:
        while True:
            yield await self._request(method)

    # The context of the handler

    def peer(self) -> str:
        return self._link.peer

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        self._at_end.append(function)


def _encoded(serializer: Callable[[Any], bytes] | None, message: Any) -> bytes:
    return bytes(message) if serializer is None else serializer(message)


def _decoded(deserializer: Callable[[bytes], Any] | None, message: bytes) -> Any:
    return message if deserializer is None else deserializer(message)


def _too_large(size_bytes: int, limit_bytes: int) -> CallFailed:
    return CallFailed(Status.RESOURCE_EXHAUSTED, f"Received message larger than max ({size_bytes} vs. {limit_bytes})")
