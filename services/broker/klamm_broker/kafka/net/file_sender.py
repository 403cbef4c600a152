"""Sends an answer with files by sendfile, bypassing the transport, on the same socket.

Neither asyncio's nor uvloop's transport allows others to wait for its descriptor, and uvloop has no `loop.sendfile`. So
the sender has its own descriptor for the socket. The client sees the end of the connection only when both are closed.
When the socket's buffer is full, the sender continues as soon as the socket is writable, without another task's turn.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

from klamm_broker.io.record_file import RecordFile
from klamm_broker.kafka.codec.wire import Part

TURN_BYTES = 1024**2
"""The most bytes sent in one turn, so that other connections are served, however fast the client reads."""


class FileSender:
    """Sends files over one transport, which must have nothing left to write while `send` runs. The owner calls `close`,
    even during a `send`."""

    def __init__(self, transport: Any, send_buffer_bytes: int) -> None:
        assert transport.get_extra_info("sslcontext") is None, "sendfile would write plain bytes into a stream of TLS"
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.setblocking(False)
        if send_buffer_bytes >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self._pending: deque[memoryview | RecordFile] = deque()
        self._sent_bytes = 0
        """The number of bytes sent of the first pending file."""

    def close(self) -> None:
        self._socket.close()

    async def send(self, parts: Sequence[Part]) -> None:
        """Returns when the kernel has all bytes of the answer. Raises as `RecordFile.send`, or OSError for a broken
        connection."""
        self._pending, self._sent_bytes = joined(parts), 0
        if self._send_some():
            return
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.add_writer(self._socket.fileno(), self._on_writable, done)
        try:
            await done
        finally:
            loop.remove_writer(self._socket.fileno())

    def _on_writable(self, done: asyncio.Future[None]) -> None:
        if done.done():
            return
        try:
            if self._send_some():
                done.set_result(None)
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            done.set_exception(error)

    def _send_some(self) -> bool:
        """Sends as much as the socket accepts now, until the turn is over. Returns True if nothing is left."""
        room_bytes = TURN_BYTES
        try:
            while self._pending and room_bytes > 0:
                room_bytes -= self._send_first(room_bytes)
        except BlockingIOError:
            return False
        return not self._pending

    def _send_first(self, max_bytes: int) -> int:
        """Sends bytes of the first pending part. Returns how many bytes it sent. Raises BlockingIOError if the socket
        is full."""
        first = self._pending[0]
        if isinstance(first, RecordFile):
            sent_bytes = first.send(self._socket.fileno(), self._sent_bytes, max_bytes)
            self._sent_bytes += sent_bytes
            if self._sent_bytes == len(first):
                self._sent_bytes = 0
                self._pending.popleft()
            return sent_bytes
        # MSG_MORE sends a header in one TCP segment with the bytes after it.
        sent_bytes = self._socket.send(first, socket.MSG_MORE if len(self._pending) > 1 else 0)
        if sent_bytes < len(first):
            self._pending[0] = first[sent_bytes:]
        else:
            self._pending.popleft()
        return sent_bytes


def joined(parts: Sequence[Part]) -> deque[memoryview | RecordFile]:
    """Returns the files and the bytes in order. Joins the parts between two files into one piece."""
    pending: deque[memoryview | RecordFile] = deque()
    between = bytearray()
    for part in parts:
        if not isinstance(part, RecordFile):
            between += part
            continue
        if between:
            pending.append(memoryview(between))
            between = bytearray()
        pending.append(part)
    if between:
        pending.append(memoryview(between))
    return pending
