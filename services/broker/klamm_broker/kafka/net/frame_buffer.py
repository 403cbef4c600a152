"""The bytes that a connection has read, and the frames in them.

A frame that cannot be read ends the connection, as in Kafka, because the start of the next frame is unknown. If it is
the first frame, the client may have dialled the wrong port.
"""

from __future__ import annotations

import struct

from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_server.net.wrong_protocol import FIRST_BYTES, ClientProtocol, recognised

FIRST_BUFFER_BYTES = 2 * 1024
"""The buffer of a connection that has not sent more at once. A consumer's requests are small."""
BUSY_BUFFER_BYTES = 64 * 1024
"""The buffer of a connection that has sent more, until the connection is idle."""
GROWTH = 16
"""The factor by which the buffer of a larger frame grows, relative to the bytes that have arrived. It grows step by
step, because announcing bytes costs a client nothing. One step is enough for a frame of 1 MiB."""
_SIZE = struct.Struct(">i")


class NotKafkaError(Exception):
    """Raised if a client does not speak the Kafka protocol."""

    def __init__(self, protocol: ClientProtocol) -> None:
        super().__init__(protocol)
        self.protocol = protocol


class FrameBuffer:
    """The buffer of a connection. Invariant: `room[_start:filled]` begins with a frame's length."""

    __slots__ = ("_buffer", "_is_first", "_start", "_view", "capacity", "filled", "room")

    def __init__(self) -> None:
        self._start = self.filled = 0
        self._is_first = True
        self._buffer = bytearray()
        self._resize(FIRST_BUFFER_BYTES)

    @property
    def has_served(self) -> bool:
        """True if frames were dropped since the last `pack`."""
        return self._start > 0

    def next_frame(self, max_bytes: int) -> memoryview | None:
        """Returns the next frame if it is complete, otherwise None. It is valid until it is dropped.

        Raises MalformedRequestError, and NotKafkaError if the first frame is of another protocol."""
        begin = self._start + _SIZE.size
        if begin > self.filled:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if not 0 < size <= max_bytes:
            protocol = recognised(self._buffer[:FIRST_BYTES]) if self._is_first else None
            if protocol is not None and protocol is not ClientProtocol.KAFKA:
                raise NotKafkaError(protocol)
            raise MalformedRequestError(f"a frame of {size} bytes; expected at most {max_bytes}")
        end = begin + size
        return self._view[begin:end] if end <= self.filled else None

    def drop_frame(self, size: int) -> None:
        """Drops the next frame, of `size` bytes, after it was answered."""
        self._start += _SIZE.size + size
        self._is_first = False

    def has_more(self, size: int) -> bool:
        """Returns True if bytes have arrived behind the next frame, which has `size` bytes."""
        return self._start + _SIZE.size + size < self.filled

    def take_all(self) -> bytes:
        """Removes and returns all bytes."""
        data = bytes(self.room[: self.filled])
        self._start = self.filled = 0
        return data

    def pack(self, was_full: bool) -> int:
        """Moves the unread bytes to the start, and makes room for a whole frame, or for more if `was_full`.

        Returns the size of a large frame that has filled a busy connection's buffer, for `grow`, otherwise 0."""
        rest = self.filled - self._start
        if self._start and rest:
            self.room[:rest] = self.room[self._start : self.filled]
        self._start, self.filled = 0, rest
        size: int = _SIZE.unpack_from(self._buffer)[0] if rest >= _SIZE.size else 0
        needed_bytes = _SIZE.size + size
        if needed_bytes > BUSY_BUFFER_BYTES <= rest:
            return size
        if self.capacity != BUSY_BUFFER_BYTES and (was_full or needed_bytes > self.capacity):
            # This also frees the memory of a large frame, which it filled.
            self._resize(BUSY_BUFFER_BYTES)
        return 0

    def grow(self, size: int) -> None:
        """Makes room for more bytes of a large frame."""
        if self.filled == self.capacity:
            self._resize(min(_SIZE.size + size, GROWTH * self.filled))

    def trim(self) -> None:
        """Frees the memory for requests, if no bytes are there."""
        if not self.filled and self.capacity > FIRST_BUFFER_BYTES:
            self._resize(FIRST_BUFFER_BYTES)

    def _resize(self, size: int) -> None:
        resized = bytearray(size)
        if self.filled:
            resized[: self.filled] = memoryview(self._buffer)[: self.filled]
        self._buffer, self.room, self.capacity = resized, memoryview(resized), size
        self._view = self.room.toreadonly()
