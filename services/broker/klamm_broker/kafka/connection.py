"""One client's socket: frames off it, answers onto it, one request at a time and in order.

Kafka serves one request of a connection at a time too. What can be answered at once is, in the turn of the event loop
that it arrived in, and the answers of a turn are written together: such a request costs no task, future or further
turn. One that has to wait gets a task; while it is under way nothing behind it is served, so what a client may have
piled up here is one frame (`socket.request.max.bytes`) and what one read brought. A turn ends with the buffer's
content, or before, to let other connections have theirs. Who does not take answers is not served: a slow reader stops
its own requests, nobody else's.

A frame that cannot be read ends the connection, as in Kafka: nobody could tell where the next one begins. If it is the
first one, it may be of a client that wants another port: it is told so, if it speaks gRPC or HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Coroutine
from time import perf_counter
from typing import Any, Protocol

from klamm.errors import KlammError
from klamm_broker.kafka.file_sender import FileSender
from klamm_broker.kafka.loop_turns import LoopTurns, Waiting
from klamm_broker.kafka.requests import Request, has_tagged_header, parse_request
from klamm_broker.kafka.wire import MalformedRequestError, Part
from klamm_broker.record_file import RecordFile, close_files
from klamm_broker.rpc.request_memory import RequestMemory
from klamm_server.grpc_refusal import GrpcRefusal
from klamm_server.wrong_door import FIRST_BYTES, Visitor, http_refusal, recognised

log = logging.getLogger(__name__)

FIRST_BUFFER_BYTES = 2 * 1024
"""What a connection holds that has not sent more at once: a consumer's requests are small."""
BUSY_BUFFER_BYTES = 64 * 1024
"""What one holds from then on, until it falls silent."""
GROWTH = 16
"""A larger frame gets room for this many times what has arrived of it: to announce bytes costs a client nothing. One
step takes a frame of a MiB."""
TURN_REQUESTS_MAX = 64
"""After so many others have their turn."""
TURN_ANSWERS_BYTES = 64 * 1024
"""From so many on the client is to take them before it gets more."""
REFUSAL_S = 5.0
"""For so long the calls of a gRPC client are refused in words."""
_SIZE = struct.Struct(">i")
_ANSWER_HEADER = struct.Struct(">ii")
_TAGGED_ANSWER_HEADER = struct.Struct(">iib")

Parts = list[Part]
"""The body of an answer, in pieces."""
Answer = Parts | None
"""None: the client wants none."""
AnswerInTime = Coroutine[Any, Any, Answer]
"""An answer that something has to be waited for."""


class ConnectionOwner(Protocol):
    """The listener, as its connections see it."""

    memory: RequestMemory
    turns: LoopTurns
    request_max_bytes: int
    send_buffer_bytes: int

    def on_connected(self, connection: KafkaConnection) -> bool:
        """Whether there is room for one more."""

    def on_closed(self, connection: KafkaConnection) -> None: ...

    def handle(self, connection: KafkaConnection, request: Request) -> Answer | AnswerInTime:
        """Raises a KlammError to end the connection. Only an answer in time may have files."""

    def turn_away(self, visitor: Visitor, peer: str) -> str:
        """Logs that it came; what to tell it."""

    def on_sent(self, connection: KafkaConnection, request: Request, send_s: float) -> None:
        """A request that had to wait is answered; its client took so long to take the answer."""


class _NotKafkaError(Exception):
    """Somebody else came here."""

    def __init__(self, visitor: Visitor) -> None:
        super().__init__(visitor)
        self.visitor = visitor


class KafkaConnection(asyncio.BufferedProtocol):
    """See the module's docstring.

    Invariants: `_buffer[_start:_filled]` begins with a frame's length; neither it nor `_start` changes while a task is
    under way. `_next_turn` is set while the loop is to come back here, and then nothing is read."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._memory = owner.memory
        self._turns = owner.turns
        self._start = self._filled = 0
        self._buffer = bytearray()
        self._resize(FIRST_BUFFER_BYTES)
        self._transport: Any = None
        self._peer = ""
        self._task: asyncio.Task[None] | None = None
        self._next_turn: asyncio.Handle | Waiting | None = None
        self._files: FileSender | None = None
        self._frame_bytes = self._unsent_bytes = 0
        """What it holds of the owner's memory: for a frame that is large or waits, and for answers that wait."""
        self._is_reading = self._is_first = True
        self._refusal: GrpcRefusal | None = None
        self._refusal_end: asyncio.TimerHandle | None = None
        self._is_over = self._is_lost = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self.last_request_ms = 0
        """When it was last heard of; the listener closes those that are silent for too long."""
        self.queued_s = self.began_s = 0.0
        """Of the request under way, if it has to wait: how long it did for memory, and since when it is served."""

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for something here."""
        return self._task is not None

    @property
    def arrived_bytes(self) -> int | None:
        """What is here of a frame that holds memory while the rest is on its way; None if there is no such frame."""
        return self._filled if self._frame_bytes and not self.is_busy else None

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if address else ""
        if not self._owner.on_connected(self):
            self.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._refusal is None:
            self._serve()
        else:
            self._refuse(self._refusal)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self._memory.give_back(self._unsent_bytes)
        self._unsent_bytes = 0
        self._come_back()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = self._is_lost = True
        self._writable.set()
        self._memory.give_back(self._unsent_bytes)
        self._unsent_bytes = 0
        if self._next_turn is not None:
            self._next_turn.cancel()
        if self._refusal_end is not None:
            self._refusal_end.cancel()
        if self._task is None:
            self._let_go()
        else:
            # Behind its first step, which may be still to come: what it awaits wants to be begun.
            asyncio.get_running_loop().call_soon(self._task.cancel)
        self._owner.on_closed(self)

    # What the listener says

    def trim(self) -> None:
        """Gives back what it holds for requests, if none is there."""
        if not self._filled and len(self._buffer) > FIRST_BUFFER_BYTES:
            self._resize(FIRST_BUFFER_BYTES)

    def cut_off(self, reason: str) -> None:
        """Closes it and logs the reason."""
        log.warning("client=%s connection closed: %s", self._peer, reason)
        self.close()

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
        was_full = self._filled == len(self._buffer)
        is_free = self._task is None and self._next_turn is None and self._writable.is_set()
        if is_free and not self._turns.may_begin():
            self._next_turn = self._turns.wait(self._on_next_turn)
        elif is_free:
            try:
                has_more = self._serve_turn()
                if self._task is None:
                    self._make_room(was_full)
            except _NotKafkaError as error:
                self._turn_away(error.visitor)
                return
            except Exception as error:  # noqa: BLE001 - told apart there
                self._end(error)
                return
            # A read that filled the buffer has left something behind.
            if has_more or (was_full and self._start):
                self._come_back()
        self._read_on(self._next_turn is None and self._filled < len(self._buffer))

    def _serve_turn(self) -> bool:
        """Whether there may be more to serve at once. Raises a KlammError, or what a handler of ours should not."""
        answers: list[Any] = []
        answers_bytes = 0
        try:
            for _ in range(TURN_REQUESTS_MAX):
                frame = self._frame()
                if frame is None:
                    return False
                request = parse_request(frame, self._peer)
                if not self._frame_bytes and not self._memory.has_room(len(frame)):
                    self._begin(self._handle_in_time(request))
                    return False
                answer = self._owner.handle(self, request)
                if isinstance(answer, list):
                    size = sum(map(len, answer))
                    answers += (_header_of(request, size), *answer)
                    answers_bytes += size
                elif answer is not None:
                    self._hold_frame(len(frame))
                    self._begin(self._answer_in_time(request, answer))
                    return False
                self._drop_frame(len(frame))
                if answers_bytes >= TURN_ANSWERS_BYTES:
                    break
            return True
        finally:
            if answers:
                self._transport.write(b"".join(answers))
                if not self._writable.is_set():
                    self._memory.take_anyway(answers_bytes)
                    self._unsent_bytes += answers_bytes

    def _frame(self) -> memoryview | None:
        """The next one, once all of it is here; valid until `_drop_frame`. Raises MalformedRequestError."""
        begin = self._start + _SIZE.size
        if begin > self._filled:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if not 0 < size <= self._owner.request_max_bytes:
            visitor = recognised(self._buffer[:FIRST_BYTES]) if self._is_first else None
            if visitor is not None and visitor is not Visitor.KAFKA:
                raise _NotKafkaError(visitor)
            raise MalformedRequestError(
                f"a frame of {size} bytes; expected at most socket.request.max.bytes={self._owner.request_max_bytes}"
            )
        end = begin + size
        return self._view[begin:end] if end <= self._filled else None

    def _drop_frame(self, size: int) -> None:
        """It was answered."""
        self._start += _SIZE.size + size
        self._is_first = False
        self._release_frame()

    def _hold_frame(self, size: int) -> None:
        if not self._frame_bytes:
            self._memory.take_anyway(size)
            self._frame_bytes = size

    def _release_frame(self) -> None:
        if self._frame_bytes:
            self._memory.give_back(self._frame_bytes)
            self._frame_bytes = 0

    def _make_room(self, was_full: bool) -> None:
        """Moves what is left to the buffer's start, and has the buffer take a whole frame, or more of a large one."""
        rest = self._filled - self._start
        if self._start and rest:
            self._room[:rest] = self._room[self._start : self._filled]
        self._start, self._filled = 0, rest
        size = _SIZE.unpack_from(self._buffer)[0] if rest >= _SIZE.size else 0
        needed_bytes = _SIZE.size + size
        if needed_bytes > BUSY_BUFFER_BYTES <= rest:
            self._make_large_room(size)
        elif len(self._buffer) != BUSY_BUFFER_BYTES and (was_full or needed_bytes > len(self._buffer)):
            # Also gives back what a large frame took, which it filled.
            self._resize(BUSY_BUFFER_BYTES)

    def _make_large_room(self, size: int) -> None:
        """For a frame that has filled a busy connection's buffer. The owner's memory for all of it is taken first:
        frames that took it bit by bit could all stand still, each waiting for what the others hold."""
        if not self._frame_bytes and not self._memory.has_room(size):
            self._begin(self._take_in_time(size))
            return
        self._hold_frame(size)
        if self._filled == len(self._buffer):
            self._resize(min(_SIZE.size + size, GROWTH * self._filled))

    def _resize(self, size: int) -> None:
        resized = bytearray(size)
        if self._filled:
            resized[: self._filled] = memoryview(self._buffer)[: self._filled]
        self._buffer, self._room = resized, memoryview(resized)
        self._view = self._room.toreadonly()

    def _come_back(self) -> None:
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

    # Who wants another port

    def _turn_away(self, visitor: Visitor) -> None:
        advice = self._owner.turn_away(visitor, self._peer)
        if visitor is Visitor.GRPC:
            self._refusal = GrpcRefusal(advice)
            self._refusal_end = asyncio.get_running_loop().call_later(REFUSAL_S, self.close)
            self._refuse(self._refusal)
            return
        self._is_over = True
        if visitor is Visitor.HTTP:
            self._transport.write(http_refusal(advice))
        self._transport.close()

    def _refuse(self, refusal: GrpcRefusal) -> None:
        answer = refusal.answer(bytes(self._room[: self._filled]))
        self._start = self._filled = 0
        if self._writable.is_set():
            self._transport.write(answer)
        else:
            self.close()

    # What has to wait

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None or task.cancelled():
            self._end(error)
        if self._is_lost:
            self._let_go()
        self._serve()

    def _end(self, error: BaseException | None) -> None:
        """Nothing more can be done for the client; None, or a ConnectionError: it has gone."""
        if isinstance(error, KlammError):
            log.warning("client=%s connection closed: %s", self._peer, error)
        elif error is not None and not isinstance(error, ConnectionError):
            # Our mistake, which must not cost anybody else's connection.
            log.error("client=%s connection closed", self._peer, exc_info=error)
        self.close()

    def _let_go(self) -> None:
        self._release_frame()
        if self._files is not None:
            self._files.close()
        self._gone.set()

    async def _take_in_time(self, size: int) -> None:
        """Memory for a large frame, when there is some."""
        await self._memory.wait_take(size)
        self._frame_bytes = size

    async def _handle_in_time(self, request: Request) -> None:
        """When there is memory for it."""
        began_s = perf_counter()
        await self._take_in_time(len(request.frame))
        self.queued_s = perf_counter() - began_s
        answer = self._owner.handle(self, request)
        if answer is not None and not isinstance(answer, list):
            answer = await answer
        await self._answer(request, answer)

    async def _answer_in_time(self, request: Request, answer: AnswerInTime) -> None:
        await self._answer(request, await answer)

    async def _answer(self, request: Request, body: Answer) -> None:
        """Until the client has taken nearly all of it; what is not in files is held in memory meanwhile."""
        began_s = perf_counter()
        if body is not None:
            size = sum(map(len, body))
            file_bytes = sum(len(part) for part in body if isinstance(part, RecordFile))
            self._memory.take_anyway(size - file_bytes)
            try:
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
        self._drop_frame(len(request.frame))

    async def _send_files(self, parts: Parts) -> None:
        if self._files is None:
            # From now on `_writable` means that the transport has nothing left.
            self._transport.set_write_buffer_limits(0)
            self._files = FileSender(self._transport, self._owner.send_buffer_bytes)
        await self._writable.wait()
        await self._files.send(parts)


def _header_of(request: Request, body_size: int) -> bytes:
    if has_tagged_header(request):
        return _TAGGED_ANSWER_HEADER.pack(5 + body_size, request.correlation_id, 0)
    return _ANSWER_HEADER.pack(4 + body_size, request.correlation_id)
