"""Sends an answer with files through an encrypting transport, slice by slice, through one buffer.

sendfile would bypass the transport and write plain bytes into a TLS stream. OpenSSL has encrypted a slice when `write`
returns. So all connections of a listener can share one buffer, which stays in the processor's cache. The next slice is
read only when the transport's write buffer has room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from klamm_broker.io.record_file import RecordFile
from klamm_broker.kafka.codec.wire import Part
from klamm_broker.kafka.net.file_sender import TURN_BYTES, joined

SLICE_BYTES: Final = 64 * 1024
WRITE_BUFFER_BYTES: Final = 256 * 1024
"""The encrypted bytes that may wait for a client. Above it, no more records are read for the client."""


class SliceSender:
    """The sender of a listener's answers with files."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(SLICE_BYTES))

    async def send(self, parts: Sequence[Part], transport: Any, writable: asyncio.Event) -> None:
        """Returns when the client has received nearly all bytes. `writable` is set while the client takes more. Raises
        as `RecordFile.read`, or ConnectionResetError."""
        turn_bytes = 0
        for part in joined(parts):
            for data in self._slices(part):
                # No other task has run since the slice was read, so the buffer is still valid.
                transport.write(data)
                turn_bytes += len(data)
                if not writable.is_set():
                    await writable.wait()
                    turn_bytes = 0
                elif turn_bytes >= TURN_BYTES:
                    await asyncio.sleep(0)
                    turn_bytes = 0
                if transport.is_closing():
                    raise ConnectionResetError("the client closed the connection")

    def _slices(self, part: memoryview | RecordFile) -> Iterator[memoryview]:
        """Yields the part in slices. A slice is valid until the next one is read, or another connection is served."""
        if not isinstance(part, RecordFile):
            yield part
            return
        sent_bytes = 0
        while sent_bytes < len(part):
            size = part.read(self._buffer, sent_bytes)
            yield self._buffer[:size]
            sent_bytes += size
