"""One client's socket: frames off it, answers onto it, one request at a time and in order.

Kafka serves one request of a connection at a time too. If the broker can answer a request immediately, it does so in
the turn of the event loop in which the request arrived. The answers of one turn are written together. Such a request
needs no task, future or further turn.

A request that has to wait gets a task, and requests behind it are not served until the task ends. So a client can fill
at most one frame (`socket.request.max.bytes`) and the bytes of one read. The task's last step serves the requests
behind it. A turn ends when the buffer is empty, or earlier, to let other connections have theirs. A client that does
not read its answers is not served, so a slow reader stops only its own requests.

After a client has used up a quota, the broker reads nothing from it during the throttle time (`throttle.py`).

A frame that cannot be read ends the connection (`frame_buffer.py`). If a client speaks gRPC or HTTP, the broker answers
that the client must use another port.

With TLS the transport encrypts, and only the way of records into it differs. The client's principal comes from its
certificate when the connection begins, or from its login.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Protocol

from klamm.errors import KlammError
from klamm_broker.io.record_file import RecordFile, close_files
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.kafka.file_sender import FileSender
from klamm_broker.kafka.frame_buffer import FrameBuffer, NotKafkaError
from klamm_broker.kafka.held_memory import HeldMemory
from klamm_broker.kafka.loop_turns import LoopTurns, Waiting
from klamm_broker.kafka.refused_client import RefusedClient
from klamm_broker.kafka.requests import Request, has_tagged_header, parse_request
from klamm_broker.kafka.slice_sender import WRITE_BUFFER_BYTES, SliceSender
from klamm_broker.kafka.throttle import Throttle
from klamm_broker.kafka.wire import Part
from klamm_server.net.wrong_door import Visitor, http_refusal
from klamm_server.security.session import Session

log = logging.getLogger(__name__)

TURN_REQUESTS_MAX = 64
"""Requests that are served in one turn, before other connections have theirs."""
TURN_ANSWERS_BYTES = 64 * 1024
"""Bytes of answers after which the client has to take them before it gets more."""
ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that shows no certificate and has not logged in."""
_ANSWER_HEADER = struct.Struct(">ii")
_TAGGED_ANSWER_HEADER = struct.Struct(">iib")

Parts = list[Part]
"""The body of an answer, in pieces."""
Answer = Parts | None
"""An answer, or None if the client expects none."""
AnswerInTime = Coroutine[Any, Any, Answer]
"""An answer that something has to be waited for."""


class LoginOf(Protocol):
    """The login of a connection, where clients log in."""

    def hold_back(self, rest_ms: int) -> None:
        """The time for the login begins `rest_ms` later."""

    def begin(self, *, has_place: bool) -> str:
        """The connection has come about; if it is one too many, says which bound has been reached."""

    def close(self) -> None:
        """The connection has gone."""

    def handler_of(self, request: Request) -> Callable[[Request], Answer | AnswerInTime] | None:
        """Returns the handler of a login's request, or None for other requests. Raises a KlammError to end the
        connection."""


class ConnectionOwner(Protocol):
    """The listener, as its connections see it."""

    memory: RequestMemory
    turns: LoopTurns
    request_max_bytes: int
    send_buffer_bytes: int
    slices: SliceSender | None
    """Sends the records of files over TLS; None without TLS."""

    def on_connected(self, connection: KafkaConnection) -> bool:
        """Whether the connection is accepted: there is room for one more, and its principal is known."""

    def on_closed(self, connection: KafkaConnection) -> None: ...

    def handle(self, connection: KafkaConnection, request: Request) -> Answer | AnswerInTime:
        """Raises a KlammError to end the connection. Only an answer in time may have files."""

    def turn_away(self, visitor: Visitor, peer: str) -> str:
        """Logs that it came; what to tell it."""

    def on_sent(self, connection: KafkaConnection, request: Request, send_s: float) -> None:
        """A request that had to wait is answered; its client took so long to take the answer."""


class KafkaConnection(asyncio.BufferedProtocol):
    """See the module's docstring.

    Invariants: no frame is taken or dropped while a task is under way. `_next_turn` is set while the loop is to come
    back here, and then nothing is read."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._memory = owner.memory
        self._turns = owner.turns
        self._held = HeldMemory(owner.memory)
        self._frames = FrameBuffer()
        self._transport: Any = None
        self._peer = ""
        self._task: asyncio.Task[None] | None = None
        self._next_turn: asyncio.Handle | Waiting | None = None
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
        """Where clients log in."""
        self.request_max_bytes = owner.request_max_bytes
        self.session: Session | None = None
        """What it may do, where there is an authorizer."""
        self.expires_ms: int | None = None
        """When its certificate ends by the wall clock, and the connection with it; None: never."""
        self.throttle: Throttle | None = None
        """What the request under way, or just answered, costs the client, where quotas are set."""
        self.last_request_ms = 0
        """The time of the client's last request. The listener closes connections that are idle for too long."""
        self.queued_s = self.began_s = 0.0
        """How long the request under way waited for memory, if it had to, and when its time began, that wait
        included."""

    @property
    def has_begun(self) -> bool:
        """Whether it has come about; with TLS, by the end of the handshake."""
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
        """Whether the client waits for something here."""
        return self._task is not None

    @property
    def arrived_bytes(self) -> int | None:
        """The bytes that have arrived of an incomplete frame that holds memory; None if there is no such frame."""
        return self._frames.filled if self._held.frame_bytes and not self.is_busy else None

    # What the transport says

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
            # Behind its first step, which may be still to come: what it awaits wants to be begun.
            asyncio.get_running_loop().call_soon(self._task.cancel)
        self._owner.on_closed(self)

    # What the listener says

    def trim(self) -> None:
        """Gives back what it holds for requests, if none is there."""
        self._frames.trim()

    def cut_off(self, reason: str) -> None:
        """Closes it and logs the reason."""
        log.warning("client=%s connection closed: %s", self._peer, reason)
        self.close()

    def hold_back(self, rest_ms: int) -> None:
        """Nothing of it is served for so long."""
        if self.login is not None:
            self.login.hold_back(rest_ms)
        self._next_turn = asyncio.get_running_loop().call_later(rest_ms / 1000, self._on_next_turn)

    def end_after_answer(self) -> None:
        """Closes it when the answer to the request under way, which has to wait, is on its way."""
        self._ends_after_answer = True

    def close(self) -> None:
        """Cuts it off."""
        self._is_over = True
        self._transport.abort()

    async def closed(self) -> None:
        """When nothing of it is left."""
        await self._gone.wait()

    # Serving

    def _serve(self) -> None:
        """Answers what is here, until something has to be waited for or the turn is over, and sees to its going on."""
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
                    self._rest()
                if self._task is None and (large_size := frames.pack(was_full)):
                    self._make_large_room(large_size)
            except NotKafkaError as error:
                self._turn_away(error.visitor)
                return
            except Exception as error:  # noqa: BLE001 - told apart there
                self._end(error)
                return
            # A read that filled the buffer has left something behind.
            if has_more or (was_full and frames.has_served):
                self._schedule_turn()
        self._read_on(self._next_turn is None and frames.filled < frames.capacity)

    def _serve_turn(self) -> bool:
        """Whether there may be more to serve at once. Raises a KlammError, or what a handler of ours should not."""
        answers: list[Any] = []
        answers_bytes = 0
        frames, held = self._frames, self._held
        try:
            for _ in range(TURN_REQUESTS_MAX):
                frame = frames.next_frame(self.request_max_bytes)
                if frame is None:
                    return False
                request = parse_request(frame, self._peer)
                if not held.frame_bytes and not self._memory.has_room(len(frame)):
                    self._begin(self._handle_in_time(request))
                    return False
                answer = self._owner.handle(self, request)
                if isinstance(answer, list):
                    size = sum(map(len, answer))
                    answers += (_header_of(request, size), *answer)
                    answers_bytes += size
                elif answer is not None:
                    held.hold_frame(len(frame))
                    self._begin(self._answer_in_time(request, answer))
                    return False
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

    def _make_large_room(self, size: int) -> None:
        """Makes room for a frame that has filled a busy connection's buffer. The memory of the whole frame is taken
        first. Frames that took memory bit by bit could block each other."""
        if not self._held.frame_bytes and not self._memory.has_room(size):
            self._begin(self._held.wait_hold_frame(size))
            return
        self._held.hold_frame(size)
        self._frames.grow(size)

    def _rest(self) -> None:
        """The client is not read for as long as it was told to rest (KIP-219)."""
        throttle, self.throttle = self.throttle, None
        if throttle is not None and throttle.ms and not self._is_over:
            self.hold_back(throttle.ms)

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

    # Clients that want another port

    def _turn_away(self, visitor: Visitor) -> None:
        advice = self._owner.turn_away(visitor, self._peer)
        if visitor is Visitor.GRPC:
            self._refused = RefusedClient(advice, self._transport, self.close)
            self._refused.answer(self._frames.take_all(), is_writable=self._writable.is_set())
            return
        self._is_over = True
        if visitor is Visitor.HTTP:
            self._transport.write(http_refusal(advice))
        self._transport.close()

    # Requests that have to wait

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
            self._rest()
        self._serve()

    def _end(self, error: BaseException | None) -> None:
        """Nothing more can be done for the client; None, or a ConnectionError: it has gone."""
        if isinstance(error, KlammError):
            log.warning("client=%s connection closed: %s", self._peer, error)
        elif error is not None and not isinstance(error, ConnectionError):
            # Our mistake, which must not cost anybody else's connection.
            log.error("client=%s connection closed after an internal error", self._peer, exc_info=error)
        self.close()

    def _release(self) -> None:
        self._held.release_frame()
        if self._file_sender is not None:
            self._file_sender.close()
        self._gone.set()

    async def _handle_in_time(self, request: Request) -> None:
        """Handles the request when there is memory for it."""
        began_s = perf_counter()
        await self._held.wait_hold_frame(len(request.frame))
        self.queued_s = perf_counter() - began_s
        answer = self._owner.handle(self, request)
        if answer is not None and not isinstance(answer, list):
            answer = await answer
        await self._answer(request, answer)

    async def _answer_in_time(self, request: Request, answer: AnswerInTime) -> None:
        await self._answer(request, await answer)

    async def _answer(self, request: Request, body: Answer) -> None:
        """Sends an answer, and returns when the client has received nearly all of it. Until then, the parts that are
        not in files count as held memory."""
        began_s = perf_counter()
        if body is not None:
            size = sum(map(len, body))
            file_bytes = sum(len(part) for part in body if isinstance(part, RecordFile))
            self._memory.take_anyway(size - file_bytes)
            try:
                if self._transport.is_closing():
                    # uvloop refuses to write with a RuntimeError.
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
        self._owner.on_sent(self, request, perf_counter() - began_s)
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
            # From now on `_writable` means that the transport has nothing left.
            self._transport.set_write_buffer_limits(0)
            self._file_sender = FileSender(self._transport, self._owner.send_buffer_bytes)
        await self._writable.wait()
        await self._file_sender.send(parts)


def _header_of(request: Request, body_size: int) -> bytes:
    if has_tagged_header(request):
        return _TAGGED_ANSWER_HEADER.pack(5 + body_size, request.correlation_id, 0)
    return _ANSWER_HEADER.pack(4 + body_size, request.correlation_id)
