"""Reads Kafka's primitive types from untrusted bytes. Every length is checked against the bytes that are left."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeVar

from klamm.errors import KlammError

T = TypeVar("T")
BufferT = TypeVar("BufferT", bytes, memoryview)

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VARINT_BYTES_MAX = 5

TAGGED_FIELDS_MAX: Final = 10_000
"""The most tagged fields of one message. An empty one has two bytes, so a large message could have millions, which all
take time to skip. Clients send hardly any."""


class MalformedTypesError(KlammError):
    """Bytes are not a valid encoding of Kafka's types."""


class KafkaReader(Generic[BufferT]):
    """Reads forward through a buffer. Returned bytes are slices of the buffer, so slices of a view are views.

    Every method raises `error` if the buffer ends too early or has invalid content."""

    __slots__ = ("_buffer", "_flexible", "_tagged_left", "position")

    error: ClassVar[type[KlammError]] = MalformedTypesError
    """The exception class. A subclass sets its own, which names the kind of bytes."""

    def __init__(self, buffer: BufferT, *, flexible: bool = False, position: int = 0) -> None:
        self._buffer: BufferT = buffer
        self._flexible = flexible
        self._tagged_left = TAGGED_FIELDS_MAX
        self.position = position

    def use_flexible(self) -> None:
        """Reads lengths as varints from here on."""
        self._flexible = True

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        """Reads several numbers at once."""
        position = self.position
        self.position = position + layout.size
        try:
            return layout.unpack_from(self._buffer, position)
        except struct.error:
            end = len(self._buffer)
            raise self.error(f"the data ends at byte {end}, within a number that begins at byte {position}") from None

    def int8(self) -> int:
        return self.fields(_INT8)[0]

    def boolean(self) -> bool:
        return self.fields(_INT8)[0] != 0

    def int16(self) -> int:
        return self.fields(_INT16)[0]

    def int32(self) -> int:
        return self.fields(_INT32)[0]

    def int64(self) -> int:
        return self.fields(_INT64)[0]

    def uuid(self) -> bytes:
        """Reads a UUID of 16 bytes."""
        return bytes(self._take(16))

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self.error(f"the string that ends at byte {self.position} is null; expected text")
        return text

    def nullable_string(self) -> str | None:
        size = self.unsigned_varint() - 1 if self._flexible else self.fields(_INT16)[0]
        if size < 0:
            self._check_null(size)
            return None
        return self.text(size)

    def text(self, size: int) -> str:
        """Reads a string of `size` bytes."""
        try:
            return str(self._take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"the string that ends at byte {self.position} is not UTF-8") from error

    def bytes_(self) -> BufferT:
        value = self.nullable_bytes()
        if value is None:
            raise self.error(f"the bytes field that ends at byte {self.position} is null; expected bytes")
        return value

    def nullable_bytes(self) -> BufferT | None:
        size = self.unsigned_varint() - 1 if self._flexible else self.fields(_INT32)[0]
        if size < 0:
            self._check_null(size)
            return None
        return self._take(size)

    def array(self, item: Callable[[], T]) -> list[T]:
        return [item() for _ in range(self.array_size())]

    def int32_array(self) -> tuple[int, ...]:
        """Reads an array of int32 values in one step."""
        count = self.array_size()
        return self.fields(struct.Struct(f">{count}i"))

    def array_size(self) -> int:
        """Reads the number of items of an array."""
        count = self.unsigned_varint() - 1 if self._flexible else self.fields(_INT32)[0]
        if not 0 <= count <= len(self._buffer) - self.position:
            raise self._no_array(count)
        return count

    def nullable_array_size(self) -> int:
        """Reads the number of items of an array, or -1 if the array is null."""
        count = self.unsigned_varint() - 1 if self._flexible else self.fields(_INT32)[0]
        if not -1 <= count <= len(self._buffer) - self.position:
            raise self._no_array(count)
        return count

    def skip_tagged_fields(self) -> None:
        """Skips the tagged fields at the end of a struct; only flexible versions have any."""
        if not self._flexible:
            return
        position = self.position
        if position < len(self._buffer) and not self._buffer[position]:
            # There are nearly always no tagged fields.
            self.position = position + 1
            return
        for _ in range(self._tagged_count()):
            self.unsigned_varint()
            self._take(self.unsigned_varint())

    def tagged_fields(self) -> dict[int, BufferT]:
        """Reads the tagged fields at the end of a struct, by tag."""
        fields: dict[int, BufferT] = {}
        if self._flexible:
            for _ in range(self._tagged_count()):
                tag = self.unsigned_varint()
                fields[tag] = self._take(self.unsigned_varint())
        return fields

    def unsigned_varint(self) -> int:
        position = self.position
        try:
            value = self._buffer[position]
            # Nearly all lengths are below 128.
            if value >= 0x80:
                value &= 0x7F
                for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
                    position += 1
                    byte = self._buffer[position]
                    value |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                else:
                    raise self.error(f"the varint at byte {self.position} has more than {_VARINT_BYTES_MAX} bytes")
        except IndexError:
            raise self.error(f"the data ends at byte {len(self._buffer)}, within a varint") from None
        self.position = position + 1
        return value

    def expect_end(self) -> None:
        """Raises the error unless all bytes were read."""
        if self.position != len(self._buffer):
            left = len(self._buffer) - self.position
            raise self.error(f"{left} bytes follow the end of the message at byte {self.position}")

    def _take(self, size: int) -> BufferT:
        position = self.position
        end = position + size
        if end > len(self._buffer):
            end = len(self._buffer)
            raise self.error(f"a field of {size} bytes begins at byte {position}, but the data ends at byte {end}")
        self.position = end
        return self._buffer[position:end]

    def _tagged_count(self) -> int:
        """Reads the number of tagged fields of a structure. Counts them against the limit of the message."""
        count = self.unsigned_varint()
        self._tagged_left -= count
        if self._tagged_left < 0:
            raise self.error(
                f"the message has more than {TAGGED_FIELDS_MAX} tagged fields, {count} of them at byte {self.position}"
            )
        return count

    def _no_array(self, count: int) -> KlammError:
        """Returns the error for an impossible count. An item takes at least one byte. So a count above the bytes that
        are left is refused, before a list of that size is made."""
        if count == -1:
            return self.error(f"the array that ends at byte {self.position} is null; expected items")
        left = len(self._buffer) - self.position
        return self.error(f"an array announces {count} items, but only {left} bytes are left")

    def _check_null(self, size: int) -> None:
        """Raises the error if a length is below zero but not -1."""
        if size != -1:
            at = self.position
            raise self.error(f"the length that ends at byte {at} is {size}; expected 0 or more, or -1 for null")
