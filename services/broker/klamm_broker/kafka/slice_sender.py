"""Sends an answer whose records are files through a transport that encrypts: slice by slice, through one buffer.

sendfile would write past the transport, plain bytes into a stream of TLS. OpenSSL has encrypted a slice when `write`
returns, so that all connections of a listener take turns with one buffer, which stays in the processor's cache. A
client has at most what the transport's write buffer takes before the next slice is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

from klamm_broker.io.record_file import RecordFile
from klamm_broker.kafka.file_sender import TURN_BYTES, joined
from klamm_broker.kafka.wire import Part

SLICE_BYTES: Final = 64 * 1024
WRITE_BUFFER_BYTES: Final = 256 * 1024
"""The encrypted bytes that may wait for a client. Above it, no more records are read for the client."""


class SliceSender:
    """One for a listener."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(SLICE_BYTES))

    async def send(self, parts: Sequence[Part], transport: Any, writable: asyncio.Event) -> None:
        """Returns when the client has taken nearly all of it; `writable` is set while it takes more. Raises what
        `RecordFile.read` does, or ConnectionResetError."""
        turn_bytes = 0
        for part in joined(parts):
            for data in self._slices(part):
                # The loop has not run since the slice was read.
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
