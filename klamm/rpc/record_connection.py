"""A connection to the Kafka listener of a broker, for calls that carry records.

gRPC copies a message several times on both sides. Here, the buffers of a request go to the socket as they are, and the
answer is received into its own buffer. The connection carries one call at a time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from klamm.rpc.status import CallFailed, Status
from klamm.wire.record_frames import ANSWER, request_start

Buffer = bytes | bytearray | memoryview

SMALL_BYTES: Final = 4_096
"""An answer up to this size needs no buffer of its own."""
_SIZE_BYTES: Final = 4
_CORRELATION_MAX: Final = 2**31 - 1


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
        self._answer: asyncio.Future[bytes | bytearray] | None = None
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
        return self._answer is not None

    async def call(self, api_key: int, version: int, pieces: Sequence[Buffer], timeout_ms: int) -> bytes | bytearray:
        """Sends a request whose body is `pieces` one after the other, and returns the body of its answer.

        Raises CallFailed if the connection was closed, or if there is no answer after `timeout_ms`, which closes the
        connection. If the caller is cancelled, the connection stays busy until the answer has come or `timeout_ms` are
        over again."""
        assert self._answer is None, "one call at a time"
        if self._why_closed:
            raise CallFailed(Status.UNAVAILABLE, self._why_closed)
        self._correlation_id = self._correlation_id % _CORRELATION_MAX + 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bytes | bytearray] = loop.create_future()
        self._answer = answer
        start = request_start(api_key, version, self._correlation_id, self._client_id, sum(map(len, pieces)))
        self._send(start, pieces)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            self.close()
            raise CallFailed(Status.DEADLINE_EXCEEDED, f"no answer after {timeout_ms} ms") from None
        except asyncio.CancelledError:
            loop.call_later(timeout_ms / 1000, self._close_if_waiting_for, answer)
            raise

    def close(self) -> None:
        """Closes the connection. The call under way raises CallFailed."""
        self._end("the client closed the connection")

    def _close_if_waiting_for(self, answer: asyncio.Future[bytes | bytearray]) -> None:
        if self._answer is answer:
            self.close()

    def _send(self, start: bytes, pieces: Sequence[Buffer]) -> None:
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
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
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
                self._read_start()
            elif self._filled == len(self._body):
                self._finish(self._body)
        except struct.error as error:
            self._end(f"the answer is malformed: {error}")

    def _read_start(self) -> None:
        """Reads the size and the correlation id of an answer. Makes room for the rest if the answer is large."""
        if self._filled < ANSWER.size:
            return
        size_bytes, correlation_id = ANSWER.unpack_from(self._small)
        if self._answer is None or correlation_id != self._correlation_id:
            self._end(f"an answer with correlation id {correlation_id} came, expected {self._correlation_id}")
            return
        if size_bytes < _SIZE_BYTES or 0 <= self._answer_max_bytes < size_bytes:
            self._end(f"the answer has {size_bytes} bytes, expected 4 to {self._answer_max_bytes}")
            return
        end = _SIZE_BYTES + size_bytes
        if self._filled > end:
            self._end(f"{self._filled - end} bytes came after the answer")
        elif self._filled == end:
            self._finish(bytes(self._room[ANSWER.size : end]))
        elif end > SMALL_BYTES:
            self._body = bytearray(end - ANSWER.size)
            here = self._filled - ANSWER.size
            self._body[:here] = self._room[ANSWER.size : self._filled]
            self._room, self._filled = memoryview(self._body), here

    def _finish(self, body: bytes | bytearray) -> None:
        assert self._answer is not None, "`_read_start` checked it"
        self._body, self._room, self._filled = None, memoryview(self._small), 0
        answer, self._answer = self._answer, None
        if not answer.done():
            answer.set_result(body)
        self.on_idle()
