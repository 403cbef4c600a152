"""One client's socket: frames off it, answers onto it, one request at a time and in order.

Kafka serves one request of a connection at a time too. While one is under way nothing more is read, so what a client
may have piled up here is one frame (`socket.request.max.bytes`) and what one read brought. An answer is written when
the client has taken the ones before it: a slow reader stops its own requests, nobody else's.

A frame that cannot be read ends the connection, as in Kafka: nobody could tell where the next one begins.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Any, Protocol

from klamm.errors import KlammError
from klamm_broker.kafka.file_sender import FileSender
from klamm_broker.kafka.requests import Request, has_tagged_header, parse_request
from klamm_broker.kafka.wire import MalformedRequestError, Part
from klamm_broker.record_file import RecordFile, close_files
from klamm_broker.rpc.request_memory import RequestMemory

log = logging.getLogger(__name__)

FIRST_BUFFER_BYTES = 2 * 1024
"""What a connection holds that has not sent more at once: a consumer's requests are small."""
BUSY_BUFFER_BYTES = 64 * 1024
"""What one holds from then on, until it falls silent."""
_SIZE = struct.Struct(">i")
_ANSWER_HEADER = struct.Struct(">ii")

Parts = Sequence[Part]
"""The body of an answer, in pieces."""


class ConnectionOwner(Protocol):
    """The listener, as its connections see it."""

    memory: RequestMemory
    request_max_bytes: int
    send_buffer_bytes: int

    def on_connected(self, connection: KafkaConnection) -> bool:
        """Whether there is room for one more."""

    def on_closed(self, connection: KafkaConnection) -> None: ...

    async def handle(self, connection: KafkaConnection, request: Request) -> Parts | None: ...


class KafkaConnection(asyncio.BufferedProtocol):
    """See the module's docstring. Invariant: `_buffer[:_filled]` begins with a frame's length."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._filled = 0
        self._transport: Any = None
        self._peer = ""
        self._task: asyncio.Task[None] | None = None
        self._files: FileSender | None = None
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.last_request_ms = 0
        """When it was last heard of; the listener closes those that are silent for too long."""
        self.is_busy = False

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if address else ""
        if not self._owner.on_connected(self):
            self._transport.abort()
            return
        self._task = asyncio.create_task(self._serve(), name="kafka-connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled == len(self._buffer):
            if self._filled < BUSY_BUFFER_BYTES:
                self._resize(BUSY_BUFFER_BYTES)
            else:
                self._transport.pause_reading()
        self._arrived.set()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        if self._task is not None:
            self._task.cancel()
        self._owner.on_closed(self)

    # What the listener says

    def trim(self) -> None:
        """Gives back what it holds for requests, if none is there."""
        if not self._filled and len(self._buffer) > FIRST_BUFFER_BYTES:
            self._resize(FIRST_BUFFER_BYTES)

    def close(self) -> None:
        """Cuts it off."""
        self._transport.abort()

    async def closed(self) -> None:
        """When its task has ended."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    # Serving

    async def _serve(self) -> None:
        try:
            while True:
                size = await self._frame_size()
                await self._owner.memory.wait_take(size)
                try:
                    await self._answer(await self._frame(size))
                finally:
                    self._owner.memory.give_back(size)
                self._drop_frame(size)
        except MalformedRequestError as error:
            log.warning("client=%s connection closed: %s", self._peer, error)
        except KlammError as error:
            # A request that no answer can be made to.
            log.warning("client=%s connection closed: %s", self._peer, error)
        except Exception:
            # Our mistake, which must not cost anybody else's connection.
            log.exception("client=%s connection closed", self._peer)
        finally:
            self._transport.abort()
            if self._files is not None:
                self._files.close()

    async def _frame_size(self) -> int:
        await self._wait_filled(_SIZE.size)
        (size,) = _SIZE.unpack_from(self._buffer)
        if not 0 < size <= self._owner.request_max_bytes:
            raise MalformedRequestError(
                f"a frame of {size} bytes; expected at most socket.request.max.bytes={self._owner.request_max_bytes}"
            )
        return int(size)

    async def _frame(self, size: int) -> memoryview:
        """Valid until `_drop_frame`."""
        end = _SIZE.size + size
        if end > len(self._buffer):
            self._resize(max(end, BUSY_BUFFER_BYTES))
            self._transport.resume_reading()
        await self._wait_filled(end)
        return memoryview(self._buffer)[_SIZE.size : end].toreadonly()

    def _drop_frame(self, size: int) -> None:
        end = _SIZE.size + size
        rest = self._filled - end
        self._buffer[:rest] = self._buffer[end : self._filled]
        self._filled = rest
        if len(self._buffer) > BUSY_BUFFER_BYTES and rest <= BUSY_BUFFER_BYTES:
            # What a large frame took is given back.
            self._resize(BUSY_BUFFER_BYTES)
        if self._filled < len(self._buffer):
            self._transport.resume_reading()

    def _resize(self, size: int) -> None:
        resized = bytearray(size)
        resized[: self._filled] = memoryview(self._buffer)[: self._filled]
        self._buffer = resized

    async def _wait_filled(self, size: int) -> None:
        while self._filled < size:
            self._arrived.clear()
            await self._arrived.wait()

    async def _answer(self, frame: memoryview) -> None:
        request = parse_request(frame, self._peer)
        self.is_busy = True
        try:
            body = await self._owner.handle(self, request)
            if body is not None:
                await self._write(request, body)
        finally:
            self.is_busy = False

    async def _write(self, request: Request, body: Parts) -> None:
        """Until the client has taken nearly all of it; what is not in files is held in memory meanwhile."""
        size = sum(map(len, body))
        file_bytes = sum(len(part) for part in body if isinstance(part, RecordFile))
        memory = self._owner.memory
        memory.take_anyway(size - file_bytes)
        try:
            parts = [_header_of(request, size), *body]
            if file_bytes:
                await self._send_files(parts)
            else:
                self._transport.writelines(parts)
                await self._writable.wait()
        finally:
            memory.give_back(size - file_bytes)
            close_files(body)

    async def _send_files(self, parts: Parts) -> None:
        if self._files is None:
            # From now on `_writable` means that the transport has nothing left.
            self._transport.set_write_buffer_limits(0)
            self._files = FileSender(self._transport, self._owner.send_buffer_bytes)
        await self._writable.wait()
        await self._files.send(parts)


def _header_of(request: Request, body_size: int) -> bytes:
    tag = b"\x00" if has_tagged_header(request.api_key, request.version) else b""
    return _ANSWER_HEADER.pack(4 + len(tag) + body_size, request.correlation_id) + tag
