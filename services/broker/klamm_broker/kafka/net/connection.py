"""One client's socket: reads frames, writes answers, and serves one request at a time in order.

Kafka serves one request of a connection at a time too. If the broker can answer a request immediately, it does so in
the turn of the event loop in which the request arrived. The answers of one turn are written together. Such a request
needs no task, future or further turn.

A request that has to wait gets a task, and requests behind it are not served until the task ends. So a client can fill
at most one frame (`socket.request.max.bytes`) and the bytes of one read. The task's last step serves the requests
behind it. A turn ends when the buffer is empty, or earlier, so that other connections are served. A client that does
not read its answers is not served, so a slow reader stops only its own requests.

After a client has used up a quota, the broker reads nothing from it during the throttle time (`throttle.py`).

A frame that cannot be read ends the connection (`frame_buffer.py`). If a client speaks gRPC or HTTP, the broker answers
that the client must use another port.

With TLS, the transport encrypts, and only the sending of records differs. The client's principal comes from its
certificate when the connection begins, or from its login.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from klamm.errors import KlammError
from klamm.process import PROCESS
from klamm_broker.io.record_file import RecordFile, close_files
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.kafka.codec.wire import Part
from klamm_broker.kafka.net.connection_fairness import ConnectionFairness, DelayedTurn
from klamm_broker.kafka.net.file_sender import FileSender
from klamm_broker.kafka.net.frame_buffer import FrameBuffer, NotKafkaError
from klamm_broker.kafka.net.held_memory import HeldMemory
from klamm_broker.kafka.net.refused_client import RefusedClient
from klamm_broker.kafka.net.slice_sender import WRITE_BUFFER_BYTES, SliceSender
from klamm_broker.kafka.net.throttle import Throttle
from klamm_broker.kafka.requests import Request, has_tagged_header, parse_request
from klamm_server.net.wrong_protocol import ClientProtocol, http_refusal
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.session import Session

log = logging.getLogger(__name__)

TURN_REQUESTS_MAX = 64
"""The most requests that are served in one turn, so that other connections are served too."""
TURN_ANSWERS_BYTES = 64 * 1024
"""After this many bytes of answers, the client must read them before its next request is served."""
ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that shows no certificate and has not logged in."""
_ANSWER_HEADER = struct.Struct(">ii")
_TAGGED_ANSWER_HEADER = struct.Struct(">iib")

Parts = list[Part]
"""The body of an answer in pieces."""
Answer = Parts | None
"""An answer, or None if the client expects none."""


class UnansweredError(KlammError):
    """A request failed whose client expects no answer. The connection is closed, so that the client notices."""


class LoginOf(Protocol):
    """The login of a connection, on a listener with logins."""

    @property
    def is_done(self) -> bool:
        """True after the first login."""

    def mute(self, throttle_ms: int) -> None:
        """Delays the start of the login's time limit by `throttle_ms`."""

    def begin(self, *, has_place: bool) -> str:
        """Begins the login of a connection that is established. Returns the reached limit if there is no place for it,
        otherwise ""."""

    def close(self) -> None:
        """Ends the login, because the connection is closed."""

    def handler_of(self, request: Request) -> Callable[[Request], Answer | Waiting[Answer]] | None:
        """Returns the handler of a login's request, or None for other requests. Raises a KlammError to end the
        connection."""


class StreamOf(Protocol):
    """The state of a connection whose requests form a stream."""

    def wake(self) -> None:
        """Called when more bytes arrive while a request waits."""

    def close(self) -> None:
        """Called once, after the last request, because the connection is closed."""


class ConnectionOwner(Protocol):
    """The interface of the listener for its connections."""

    memory: RequestMemory
    turns: ConnectionFairness
    request_max_bytes: int
    send_buffer_bytes: int
    slices: SliceSender | None
    """Sends the records of files over TLS. None without TLS."""

    def on_connected(self, connection: KafkaConnection) -> bool:
        """Returns True if the connection is accepted: there is room for it, and its principal is known."""

    def on_closed(self, connection: KafkaConnection) -> None: ...

    def handle(self, connection: KafkaConnection, request: Request) -> Answer | Waiting[Answer]:
        """Handles a request. Raises a KlammError to end the connection. Only an answer that waits may contain files."""

    def turn_away(self, protocol: ClientProtocol, peer: str) -> str:
        """Logs a client with another protocol. Returns the text to answer it with."""

    def on_sent(self, connection: KafkaConnection, request: Request, send_s: float) -> None:
        """Notes that a request that had to wait was answered, and that the client took `send_s` seconds to receive the
        answer."""


class KafkaConnection(asyncio.BufferedProtocol):
    """The connection of one Kafka client.

    Invariants: no frame is removed while a task runs. `_next_turn` is set while another turn for this connection is
    scheduled, and then nothing is read."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._memory = owner.memory
        self._turns = owner.turns
        self._elapsed_s = PROCESS.get().elapsed_s
        self._held = HeldMemory(owner.memory)
        self._frames = FrameBuffer()
        self._transport: Any = None
        self._peer = ""
        self._task: asyncio.Task[None] | None = None
        self._next_turn: asyncio.Handle | DelayedTurn | None = None
        self._file_sender: FileSender | None = None
        self._is_reading = True
        self._refused: RefusedClient | None = None
        self._is_over = self._is_lost = self._ends_after_answer = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self.principal = ANONYMOUS
        """The client's principal."""
        self.login: LoginOf | None = None
        """The login, on a listener with logins."""
        self.stream: StreamOf | None = None
        """The state of a stream, if the client's requests form one."""
        self.request_max_bytes = owner.request_max_bytes
        self.session: Session | None = None
        """The client's rights, if there is an authorizer."""
        self.expires_ms: int | None = None
        """The time when the client's certificate expires and the connection is closed, by the wall clock. None means
        never."""
        self.throttle: Throttle | None = None
        """The costs of the current or last request, if quotas are set."""
        self.last_request_ms = 0
        """The time of the client's last request. The listener closes connections that are idle for too long."""
        self.queued_s = self.began_s = 0.0
        """`queued_s` is how long the current request waited for memory. `began_s` is when its time began, including
        this wait."""

    @property
    def has_begun(self) -> bool:
        """True after the connection is established. With TLS, this is at the end of the handshake."""
        return self._transport is not None

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._peer

    @property
    def tls(self) -> ssl.SSLObject:
        """The TLS state of an encrypted connection."""
        found: ssl.SSLObject = self._transport.get_extra_info("ssl_object")
        return found

    @property
    def is_busy(self) -> bool:
        """True while a request of the client waits."""
        return self._task is not None

    @property
    def arrived_bytes(self) -> int | None:
        """The bytes that have arrived of an incomplete frame that holds memory, or None without such a frame."""
        return self._frames.filled if self._held.frame_bytes and not self.is_busy else None

    @property
    def buffer_bytes(self) -> int:
        """The size of the buffer that the connection reads requests into."""
        return self._frames.capacity

    # Calls of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if address else ""
        if self._owner.slices is not None:
            self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        if not self._owner.on_connected(self):
            self.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.room[self._frames.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.filled += nbytes
        if self.stream is not None:
            self.stream.wake()
        if self._refused is None:
            self._serve()
        else:
            self._refused.answer(self._frames.take_all(), is_writable=self._writable.is_set())

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self._held.release_unsent()
        self._schedule_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = self._is_lost = True
        self._writable.set()
        self._held.release_unsent()
        if self._next_turn is not None:
            self._next_turn.cancel()
        if self._refused is not None:
            self._refused.forget()
        if self._task is None:
            self._release()
        else:
            # Cancel after the task's first step, which may not have run yet, because the coroutine that it awaits must
            # be started.
            asyncio.get_running_loop().call_soon(self._task.cancel)
        self._owner.on_closed(self)

    def has_more(self, request: Request) -> bool:
        """Returns True if more has arrived behind the request that is being served."""
        return self._frames.has_more(len(request.frame))

    # Calls of the listener

    def trim(self) -> None:
        """Frees the memory for requests, if no request is there."""
        self._frames.trim()

    def cut_off(self, reason: str) -> None:
        """Logs the reason and closes the connection."""
        log.warning("client=%s connection closed: %s", self._peer, reason)
        self.close()

    def mute(self, throttle_ms: int) -> None:
        """Serves no request of the client for `throttle_ms`."""
        if self.login is not None:
            self.login.mute(throttle_ms)
        self._next_turn = asyncio.get_running_loop().call_later(throttle_ms / 1000, self._on_next_turn)

    def end_after_answer(self) -> None:
        """Closes the connection after the answer to the current request, which must be a waiting one."""
        self._ends_after_answer = True

    def close(self) -> None:
        """Closes the connection immediately, without sending the rest."""
        self._is_over = True
        self._transport.abort()

    async def closed(self) -> None:
        """Waits until the connection is closed and has released its memory."""
        await self._gone.wait()

    # Serving

    def _serve(self) -> None:
        """Answers the requests that have arrived, until one must wait or the turn is over, and schedules the next
        turn."""
        if self._is_over:
            return
        frames = self._frames
        was_full = frames.filled == frames.capacity
        is_free = self._task is None and self._next_turn is None and self._writable.is_set()
        if is_free and not self._turns.may_begin():
            self._next_turn = self._turns.wait(self._on_next_turn)
        elif is_free:
            try:
                has_more = self._serve_turn()
                if self.throttle is not None and self._task is None:
                    self._mute()
                if self._task is None and (large_size := frames.pack(was_full)):
                    self._grow_buffer(large_size)
            except NotKafkaError as error:
                self._turn_away(error.protocol)
                return
            except Exception as error:  # noqa: BLE001 - `_end` distinguishes the errors
                self._end(error)
                return
            # A read that filled the buffer may have left bytes in the socket.
            if has_more or (was_full and frames.has_served):
                self._schedule_turn()
        self._read_on(self._next_turn is None and frames.filled < frames.capacity)

    def _serve_turn(self) -> bool:
        """Serves requests of one turn. Returns True if there may be more to serve immediately. Raises a KlammError, or
        an unexpected exception of a handler."""
        answers: list[Any] = []
        answers_bytes = 0
        frames, held = self._frames, self._held
        try:
            for _ in range(TURN_REQUESTS_MAX):
                frame = frames.next_frame(self.request_max_bytes)
                if frame is None:
                    return False
                request = parse_request(frame, self._peer)
                if not held.frame_bytes and not self._memory.fits(len(frame)):
                    self._begin(self._handle_async(request))
                    return False
                answer = self._owner.handle(self, request)
                if isinstance(answer, Waiting):
                    held.hold_frame(len(frame))
                    self._begin(self._answer_async(request, answer))
                    return False
                if answer is not None:
                    size = sum(map(len, answer))
                    answers += (_header_of(request, size), *answer)
                    answers_bytes += size
                frames.drop_frame(len(frame))
                held.release_frame()
                if answers_bytes >= TURN_ANSWERS_BYTES or (self.throttle is not None and self.throttle.ms):
                    break
            return True
        finally:
            if answers:
                self._transport.write(b"".join(answers))
                if not self._writable.is_set():
                    held.hold_unsent(answers_bytes)

    def _grow_buffer(self, size: int) -> None:
        """Makes room for a frame that has filled a busy connection's buffer. The memory of the whole frame is taken
        first. Frames that took memory bit by bit could block each other."""
        if not self._held.frame_bytes and not self._memory.fits(size):
            self._begin(self._held.wait_hold_frame(size))
            return
        self._held.hold_frame(size)
        self._frames.grow(size)

    def _mute(self) -> None:
        """Stops reading from the client for the throttle time of its last request (KIP-219)."""
        throttle, self.throttle = self.throttle, None
        if throttle is not None and throttle.ms and not self._is_over:
            self.mute(throttle.ms)

    def _schedule_turn(self) -> None:
        if self._next_turn is None and not self._is_over:
            self._next_turn = asyncio.get_running_loop().call_soon(self._on_next_turn)

    def _on_next_turn(self) -> None:
        self._next_turn = None
        self._serve()

    def _read_on(self, wanted: bool) -> None:
        if wanted is self._is_reading:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Clients that dialled the wrong port

    def _turn_away(self, protocol: ClientProtocol) -> None:
        advice = self._owner.turn_away(protocol, self._peer)
        if protocol is ClientProtocol.GRPC:
            self._refused = RefusedClient(advice, self._transport, self.close)
            self._refused.answer(self._frames.take_all(), is_writable=self._writable.is_set())
            return
        self._is_over = True
        if protocol is ClientProtocol.HTTP:
            self._transport.write(http_refusal(advice))
        self._transport.close()

    # Requests that must wait

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(self._work(work))
        self._task.add_done_callback(self._on_done)

    async def _work(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        # The task's call-back would run in a later turn of the event loop. By then, the client may have sent its next
        # request, and the listener would serve requests of other clients first that arrived after this one.
        self._task = None
        self._go_on()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        self._task = None
        self._end(error)
        self._go_on()

    def _go_on(self) -> None:
        if self._is_lost:
            self._release()
        if self.throttle is not None:
            self._mute()
        self._serve()

    def _end(self, error: BaseException | None) -> None:
        """Closes the connection, because no more requests can be served. Logs `error` unless it is None or a
        ConnectionError, which mean that the client has gone."""
        if isinstance(error, UnansweredError):
            log.info("client=%s connection closed: %s", self._peer, error)
        elif isinstance(error, KlammError):
            log.warning("client=%s connection closed: %s", self._peer, error)
        elif error is not None and not isinstance(error, ConnectionError):
            # A bug of the broker must not affect other connections.
            log.error("client=%s connection closed after an internal error", self._peer, exc_info=error)
        self.close()

    def _release(self) -> None:
        self._held.release_frame()
        if self._file_sender is not None:
            self._file_sender.close()
        if self.stream is not None:
            self.stream.close()
        self._gone.set()

    async def _handle_async(self, request: Request) -> None:
        """Handles the request as soon as there is memory for it."""
        began_s = self._elapsed_s()
        await self._held.wait_hold_frame(len(request.frame))
        self.queued_s = self._elapsed_s() - began_s
        answer = self._owner.handle(self, request)
        if isinstance(answer, Waiting):
            answer = await answer
        await self._answer(request, answer)

    async def _answer_async(self, request: Request, answer: Waiting[Answer]) -> None:
        await self._answer(request, await answer)

    async def _answer(self, request: Request, body: Answer) -> None:
        """Sends an answer, and returns when the client has received nearly all of it. Until then, the parts that are
        not in files count as held memory."""
        began_s = self._elapsed_s()
        if body is not None:
            size = sum(map(len, body))
            file_bytes = sum(len(part) for part in body if isinstance(part, RecordFile))
            self._memory.take_anyway(size - file_bytes)
            try:
                if self._transport.is_closing():
                    # A write to a closing transport of uvloop raises RuntimeError.
                    raise ConnectionResetError("the client closed the connection")
                parts = [_header_of(request, size), *body]
                if file_bytes:
                    await self._send_files(parts)
                else:
                    self._transport.writelines(parts)
                    await self._writable.wait()
            finally:
                self._memory.give_back(size - file_bytes)
                close_files(body)
        self._owner.on_sent(self, request, self._elapsed_s() - began_s)
        self._frames.drop_frame(len(request.frame))
        self._held.release_frame()
        if self._ends_after_answer:
            self._is_over = True
            self._transport.close()

    async def _send_files(self, parts: Parts) -> None:
        if self._owner.slices is not None:
            await self._owner.slices.send(parts, self._transport, self._writable)
            await self._writable.wait()
            return
        if self._file_sender is None:
            # With this limit, `_writable` is set only when the transport has nothing left to write.
            self._transport.set_write_buffer_limits(0)
            self._file_sender = FileSender(self._transport, self._owner.send_buffer_bytes)
        await self._writable.wait()
        await self._file_sender.send(parts)


def _header_of(request: Request, body_size: int) -> bytes:
    if has_tagged_header(request):
        return _TAGGED_ANSWER_HEADER.pack(5 + body_size, request.correlation_id, 0)
    return _ANSWER_HEADER.pack(4 + body_size, request.correlation_id)
