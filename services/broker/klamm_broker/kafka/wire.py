"""The types of Kafka's protocol, read and written by hand: https://kafka.apache.org/protocol#protocol_types.

For the hot messages, whose fields are few. `flexible` versions (KIP-482) have compact lengths and tagged fields; a
reader or writer is told once which kind it is at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from klamm.errors import KlammError
from klamm_broker.record_file import RecordFile

T = TypeVar("T")
Part = bytes | bytearray | memoryview | RecordFile
"""A piece of an answer."""

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VARINT_BYTES_MAX = 5


class MalformedRequestError(KlammError):
    """Bytes that are not what they must be: the connection they came over is closed."""


class Reader:
    """Reads forward through one message. Every method raises MalformedRequestError at the message's end."""

    __slots__ = ("_buffer", "_flexible", "position")

    def __init__(self, buffer: memoryview, *, flexible: bool, position: int = 0) -> None:
        self._buffer = buffer
        self._flexible = flexible
        self.position = position

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        """Several numbers at once."""
        position = self.position
        self.position = position + layout.size
        try:
            return layout.unpack_from(self._buffer, position)
        except struct.error:
            raise MalformedRequestError(f"the message ends at byte {len(self._buffer)}, inside a number") from None

    def int8(self) -> int:
        return self._fixed(_INT8)

    def boolean(self) -> bool:
        return self._fixed(_INT8) != 0

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

    def uuid(self) -> bytes:
        """16 bytes."""
        return bytes(self._take(16))

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedRequestError(f"a string at byte {self.position} is null; expected text")
        return text

    def nullable_string(self) -> str | None:
        size = self.unsigned_varint() - 1 if self._flexible else self._fixed(_INT16)
        return None if size < 0 else self.text(size)

    def text(self, size: int) -> str:
        """Of so many bytes."""
        try:
            return str(self._take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequestError(f"a string before byte {self.position} is not UTF-8") from error

    def nullable_bytes(self) -> memoryview | None:
        """A view, valid as long as the message's buffer is."""
        size = self.unsigned_varint() - 1 if self._flexible else self._fixed(_INT32)
        return None if size < 0 else self._take(size)

    def array(self, item: Callable[[], T]) -> list[T]:
        """Of a null array: an empty list."""
        return self.nullable_array(item) or []

    def nullable_array(self, item: Callable[[], T]) -> list[T] | None:
        count = self.array_size()
        return None if count < 0 else [item() for _ in range(count)]

    def array_size(self) -> int:
        """How many items follow; negative for a null array."""
        count = self.unsigned_varint() - 1 if self._flexible else self._fixed(_INT32)
        if count > len(self._buffer) - self.position:
            # Each item takes a byte at least: a hostile count must not make a list first.
            raise MalformedRequestError(f"an array of {count} items in {len(self._buffer) - self.position} bytes")
        return count

    def skip_tagged_fields(self) -> None:
        """Nothing that is not flexible has any."""
        if self._flexible and (count := self.unsigned_varint()):
            for _ in range(count):
                self.unsigned_varint()
                self._take(self.unsigned_varint())

    def unsigned_varint(self) -> int:
        position = self.position
        try:
            value = self._buffer[position]
            # Nearly all are lengths below 128.
            if value >= 0x80:
                value &= 0x7F
                for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
                    position += 1
                    byte = self._buffer[position]
                    value |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                else:
                    raise MalformedRequestError(
                        f"a length at byte {self.position} has more than {_VARINT_BYTES_MAX} bytes"
                    )
        except IndexError:
            raise MalformedRequestError(f"the message ends at byte {len(self._buffer)}, inside a length") from None
        self.position = position + 1
        return value

    def expect_end(self) -> None:
        """Nothing is left over."""
        if self.position != len(self._buffer):
            raise MalformedRequestError(f"{len(self._buffer) - self.position} bytes after the end of the request")

    def _fixed(self, layout: struct.Struct) -> int:
        return self.fields(layout)[0]

    def _take(self, size: int) -> memoryview:
        position = self.position
        end = position + size
        if end > len(self._buffer):
            raise MalformedRequestError(f"{size} bytes at byte {position}, but the message ends at {len(self._buffer)}")
        self.position = end
        return self._buffer[position:end]


class Writer:
    """Writes one message; `parts` has it in pieces, the large ones as they were given."""

    __slots__ = ("_flexible", "_open", "_parts")

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._open = bytearray()
        self._parts: list[Part] = []

    def parts(self) -> list[Part]:
        """Everything written so far, in order."""
        return [*self._parts, self._open]

    def value(self) -> bytes:
        """Everything written so far, as the value of a tagged field; it has no records."""
        assert not self._parts, "records lie outside"
        return bytes(self._open)

    def fields(self, layout: struct.Struct, *values: int) -> None:
        """Several numbers at once."""
        self._open += layout.pack(*values)

    def int8(self, value: int) -> None:
        self._open += _INT8.pack(value)

    def boolean(self, value: bool) -> None:
        self._open.append(value)

    def int16(self, value: int) -> None:
        self._open += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._open += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._open += _INT64.pack(value)

    def uuid(self, value: bytes) -> None:
        """16 bytes."""
        assert len(value) == 16, value
        self._open += value

    def string(self, value: str) -> None:
        data = value.encode()
        if self._flexible:
            self.unsigned_varint(len(data) + 1)
        else:
            self._open += _INT16.pack(len(data))
        self._open += data

    def nullable_string(self, value: str | None) -> None:
        if value is not None:
            self.string(value)
        elif self._flexible:
            self._open.append(0)
        else:
            self._open += _INT16.pack(-1)

    def array(self, items: Sequence[T], write: Callable[[T], Any]) -> None:
        self.array_size(len(items))
        for item in items:
            write(item)

    def array_size(self, count: int) -> None:
        if self._flexible:
            self.unsigned_varint(count + 1)
        else:
            self._open += _INT32.pack(count)

    def records(self, records: Sequence[Part], size_bytes: int) -> None:
        """Record batches as one `bytes` field, not copied."""
        if self._flexible:
            self.unsigned_varint(size_bytes + 1)
        else:
            self._open += _INT32.pack(size_bytes)
        if size_bytes:
            self._parts.append(self._open)
            self._parts.extend(records)
            self._open = bytearray()

    def tagged_fields(self, fields: Sequence[tuple[int, bytes]] = ()) -> None:
        """(tag, value) in ascending order; nothing that is not flexible has any."""
        if self._flexible:
            self._open.append(len(fields))  # never as many as 128
            for tag, value in fields:
                self.unsigned_varint(tag)
                self.unsigned_varint(len(value))
                self._open += value

    def unsigned_varint(self, value: int) -> None:
        while value >= 0x80:
            self._open.append(value & 0x7F | 0x80)
            value >>= 7
        self._open.append(value)
