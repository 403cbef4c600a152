"""Writing Kafka's primitive types."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")

STRING_BYTES_MAX: Final = 0x7FFF
"""The maximum length of a classic string, because the length is an int16."""

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_SHORT: Final = 0x7F
"""Lengths below this take one byte. Nearly all lengths do."""


class KafkaWriter:
    """Builds one encoded value. Each method appends a part and returns the writer."""

    __slots__ = ("_flexible", "_open")

    def __init__(self, *, flexible: bool = False) -> None:
        self._flexible = flexible
        self._open = bytearray()

    def use_flexible(self) -> Self:
        """Writes lengths as varints from here on."""
        self._flexible = True
        return self

    def value(self) -> bytes:
        """Returns all bytes written so far."""
        return bytes(self._open)

    def fields(self, layout: struct.Struct, *values: int) -> Self:
        """Writes several numbers at once."""
        self._open += layout.pack(*values)
        return self

    def int8(self, value: int) -> Self:
        self._open += _INT8.pack(value)
        return self

    def boolean(self, value: bool) -> Self:
        self._open.append(value)
        return self

    def int16(self, value: int) -> Self:
        self._open += _INT16.pack(value)
        return self

    def int32(self, value: int) -> Self:
        self._open += _INT32.pack(value)
        return self

    def int64(self, value: int) -> Self:
        self._open += _INT64.pack(value)
        return self

    def uuid(self, value: bytes) -> Self:
        """Writes a UUID of 16 bytes."""
        assert len(value) == 16, value
        self._open += value
        return self

    def string(self, value: str) -> Self:
        data = value.encode()
        size = len(data)
        assert size <= STRING_BYTES_MAX, size
        if not self._flexible:
            self._open += _INT16.pack(size)
        elif size < _SHORT:
            self._open.append(size + 1)
        else:
            self.unsigned_varint(size + 1)
        self._open += data
        return self

    def nullable_string(self, value: str | None) -> Self:
        if value is not None:
            return self.string(value)
        if self._flexible:
            self._open.append(0)
        else:
            self._open += _INT16.pack(-1)
        return self

    def bytes_(self, value: bytes) -> Self:
        self.array_size(len(value))
        self._open += value
        return self

    def nullable_bytes(self, value: bytes | None) -> Self:
        return self.null_array() if value is None else self.bytes_(value)

    def array(self, items: Sequence[T], write: Callable[[T], Any]) -> Self:
        self.array_size(len(items))
        for item in items:
            write(item)
        return self

    def int32_array(self, numbers: Sequence[int]) -> Self:
        """Writes an array of int32 values in one step."""
        self.array_size(len(numbers))
        self._open += struct.pack(f">{len(numbers)}i", *numbers)
        return self

    def array_size(self, count: int) -> Self:
        """Writes the number of items, which comes before the items. The length of bytes is written in the same way."""
        if not self._flexible:
            self._open += _INT32.pack(count)
        elif count < _SHORT:
            self._open.append(count + 1)
        else:
            self.unsigned_varint(count + 1)
        return self

    def null_array(self) -> Self:
        return self.array_size(-1)

    def tagged_fields(self, fields: Sequence[tuple[int, bytes]] = ()) -> Self:
        """Writes the tagged fields at the end of a struct, (tag, value) in ascending order; only flexible versions have
        any."""
        if self._flexible:
            self._open.append(len(fields))  # There are never as many as 128 fields, so the count takes one byte.
            for tag, value in fields:
                self.unsigned_varint(tag)
                self.unsigned_varint(len(value))
                self._open += value
        return self

    def unsigned_varint(self, value: int) -> Self:
        while value >= 0x80:
            self._open.append(value & 0x7F | 0x80)
            value >>= 7
        self._open.append(value)
        return self
