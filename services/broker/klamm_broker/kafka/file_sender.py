"""Sends an answer whose records are files by sendfile, past the transport, on the same socket.

Neither asyncio's nor uvloop's transport lets others wait for its descriptor, and uvloop has no `loop.sendfile`. So this
has a descriptor of its own for the socket; the connection's end is seen only when both are closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from typing import Any

from klamm_broker.kafka.wire import Part
from klamm_broker.record_file import RecordFile

TURN_BYTES = 1024**2
"""After so many bytes others have their turn, however fast the client reads."""


class FileSender:
    """For one transport, which must have nothing left to write while `send` runs. `close` before or after its end."""

    def __init__(self, transport: Any, send_buffer_bytes: int) -> None:
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.setblocking(False)
        if send_buffer_bytes >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)

    def close(self) -> None:
        self._socket.close()

    async def send(self, parts: Sequence[Part]) -> None:
        """Returns when the kernel has all of it. Raises what `RecordFile.send` does, or OSError for a broken
        connection."""
        pending = bytearray()
        for part in parts:
            if isinstance(part, RecordFile):
                # The header goes into one segment with what follows it.
                await self._send_bytes(pending, socket.MSG_MORE)
                pending = bytearray()
                await self._send_file(part)
            else:
                pending += part
        await self._send_bytes(pending, 0)

    async def _send_bytes(self, data: bytearray, flags: int) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest, flags) :]
            except BlockingIOError:
                await self._writable()

    async def _send_file(self, file: RecordFile) -> None:
        sent_bytes = 0
        while sent_bytes < len(file):
            try:
                sent_bytes += file.send(self._socket.fileno(), sent_bytes, TURN_BYTES)
            except BlockingIOError:
                await self._writable()
            else:
                await asyncio.sleep(0)

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.add_writer(self._socket.fileno(), _wake, done)
        try:
            await done
        finally:
            loop.remove_writer(self._socket.fileno())


def _wake(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
