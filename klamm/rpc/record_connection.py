"""A connection to the Kafka listener of a broker, for calls that carry records.

gRPC copies a message several times on both sides. Here, the buffers of a request go to the socket as they are, and the
answer is received into its own buffer. The broker answers the requests of a connection one after the other."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from klamm.rpc.status import CallFailed, Status
from klamm.wire.record_frames import ANSWER, request_start

Buffer = bytes | bytearray | memoryview

SMALL_BYTES: Final = 4_096
"""An answer up to this size needs no buffer of its own."""
_SIZE_BYTES: Final = 4
_CORRELATION_MAX: Final = 2**31 - 1


class _Awaited(NamedTuple):
    """An answer that has not come yet."""

    correlation_id: int
    answer: asyncio.Future[bytes | bytearray]


class RecordConnection(asyncio.BufferedProtocol):
    """One connection. `client_id` names the client to the broker. An answer of more than `answer_max_bytes` closes the
    connection, unless it is -1."""

    def __init__(self, address: str, client_id: str, answer_max_bytes: int) -> None:
        self.address = address
        self._client_id = client_id
        self._answer_max_bytes = answer_max_bytes
        self._transport: Any = None
        self._small = bytearray(SMALL_BYTES)
        self._room = memoryview(self._small)
        self._filled = 0
        self._body: bytearray | None = None
        self._awaited: deque[_Awaited] = deque()
        self._correlation_id = 0
        self._why_closed = ""
        self.on_idle: Callable[[], object] = lambda: None
        """Called when a call has got its answer, and at the end of the connection."""

    @property
    def is_open(self) -> bool:
        """True until either side closes the connection."""
        return not self._why_closed

    @property
    def is_busy(self) -> bool:
        """True while the answer to a call has not come yet. This may be after its caller was cancelled."""
        return bool(self._awaited)

    async def call(self, api_key: int, version: int, pieces: Sequence[Buffer], timeout_ms: int) -> bytes | bytearray:
        """Sends a request whose body is `pieces` one after the other, and returns the body of its answer.

        Raises CallFailed if the connection was closed, or if there is no answer after `timeout_ms`, which closes the
        connection. If the caller is cancelled, the connection stays busy until the answer has come or `timeout_ms` are
        over again."""
        assert not self._awaited, "one call at a time"
        answer = self.send(api_key, version, pieces)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            self.close()
            raise CallFailed(Status.DEADLINE_EXCEEDED, f"no answer after {timeout_ms} ms") from None
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(timeout_ms / 1000, self._close_if_waiting_for, answer)
            raise

    def send(self, api_key: int, version: int, pieces: Sequence[Buffer]) -> asyncio.Future[bytes | bytearray]:
        """Sends a request whose body is `pieces` one after the other, maybe behind others. Returns the body of its
        answer as a future, which fails with CallFailed if the connection is closed before. Raises CallFailed if it is
        closed already."""
        if self._why_closed:
            raise CallFailed(Status.UNAVAILABLE, self._why_closed)
        self._correlation_id = number = self._correlation_id % _CORRELATION_MAX + 1
        answer: asyncio.Future[bytes | bytearray] = asyncio.get_running_loop().create_future()
        self._awaited.append(_Awaited(number, answer))
        self._write(request_start(api_key, version, number, self._client_id, sum(map(len, pieces))), pieces)
        return answer

    def close(self) -> None:
        """Closes the connection. Calls under way raise CallFailed."""
        self._end("the client closed the connection")

    def _close_if_waiting_for(self, answer: asyncio.Future[bytes | bytearray]) -> None:
        if any(awaited.answer is answer for awaited in self._awaited):
            self.close()

    def _write(self, start: bytes, pieces: Sequence[Buffer]) -> None:
        # A small request is one write to the socket. The records of a large one are not copied.
        if len(pieces[0]) <= SMALL_BYTES:
            start, pieces = start + bytes(pieces[0]), pieces[1:]
        self._transport.write(start)
        for piece in pieces:
            self._transport.write(piece)

    def _end(self, why: str) -> None:
        if self._why_closed:
            return
        self._why_closed = why
        if self._transport is not None:
            self._transport.abort()
        while self._awaited:
            answer = self._awaited.popleft().answer
            if not answer.done():
                answer.set_exception(CallFailed(Status.UNAVAILABLE, why))
        self.on_idle()

    # Calls of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"the connection was lost: {error}" if error else "the server closed the connection")

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        try:
            if self._body is None:
                self._read_answers()
            elif self._filled == len(self._body):
                self._finish_large(self._body)
        except struct.error as error:
            self._end(f"the answer is malformed: {error}")

    def _read_answers(self) -> None:
        """Reads the small answers that have come. Makes room for the rest of a large one."""
        while self._filled >= ANSWER.size:
            size_bytes, correlation_id = ANSWER.unpack_from(self._small)
            expected = self._awaited[0].correlation_id if self._awaited else 0
            if correlation_id != expected:
                self._end(f"an answer with correlation id {correlation_id} came, expected {expected or 'none'}")
                return
            if size_bytes < _SIZE_BYTES or 0 <= self._answer_max_bytes < size_bytes:
                self._end(f"the answer has {size_bytes} bytes, expected 4 to {self._answer_max_bytes}")
                return
            end = _SIZE_BYTES + size_bytes
            if end > SMALL_BYTES:
                self._begin_large(end - ANSWER.size)
                return
            if self._filled < end:
                return
            if self._filled > end and len(self._awaited) == 1:
                self._end(f"{self._filled - end} bytes came after the answer")
                return
            body = bytes(self._room[ANSWER.size : end])
            self._room[: self._filled - end] = self._room[end : self._filled]
            self._filled -= end
            self._finish(body)

    def _begin_large(self, body_bytes: int) -> None:
        here = self._filled - ANSWER.size
        self._body = bytearray(body_bytes)
        self._body[:here] = self._room[ANSWER.size : self._filled]
        self._room, self._filled = memoryview(self._body), here

    def _finish_large(self, body: bytearray) -> None:
        self._body, self._room, self._filled = None, memoryview(self._small), 0
        self._finish(body)

    def _finish(self, body: bytes | bytearray) -> None:
        answer = self._awaited.popleft().answer
        if not answer.done():
            answer.set_result(body)
        self.on_idle()
