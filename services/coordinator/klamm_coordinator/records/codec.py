"""Kafka's primitive encodings, as far as the schemas of the internal topics need them.

Two families share the fixed-width integers (big endian) and differ in how lengths are written:

    classic    string: int16 length, -1 is null    bytes: int32 length    array: int32 count
    flexible   string, bytes, array: unsigned varint of length + 1, 0 is null; each struct ends in tagged fields

A reader ignores the tagged fields that it does not know (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from klamm.errors import KlammError

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")

STRING_BYTES_MAX = 0x7FFF
"""What the int16 length of a classic string can say."""
_VARINT_SHIFT_MAX = 28


class SchemaError(KlammError):
    """Bytes that do not follow the schema they claim to follow."""


class Reader:
    """Reads one value from its start. Every method raises SchemaError when the bytes end too early."""

    __slots__ = ("_data", "_flexible", "_position")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._flexible = flexible
        self._position = 0

    def use_flexible(self) -> None:
        """Lengths are varints from here on."""
        self._flexible = True

    def int8(self) -> int:
        return self._fixed(_INT8)

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

    def uuid(self) -> bytes:
        """16 bytes."""
        value = self._take(16)
        assert value is not None
        return value

    def nullable_string(self) -> str | None:
        raw = self._take(self._length(_INT16))
        try:
            return None if raw is None else raw.decode()
        except UnicodeDecodeError as error:
            raise SchemaError(f"a string before byte {self._position} is not UTF-8: {error}") from error

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise SchemaError(f"the string before byte {self._position} is null")
        return value

    def bytes_(self) -> bytes:
        value = self._take(self._length(_INT32))
        if value is None:
            raise SchemaError(f"the bytes before byte {self._position} are null")
        return value

    def array_count(self) -> int:
        """How many elements follow; at least one byte each, so a count beyond the data is refused."""
        return self._checked_count(self._length(_INT32))

    def nullable_array_count(self) -> int:
        """As `array_count`; 0 for null."""
        count = self._length(_INT32)
        return 0 if count == -1 else self._checked_count(count)

    def _checked_count(self, count: int) -> int:
        if not 0 <= count <= len(self._data) - self._position:
            raise SchemaError(f"an array of {count} elements does not fit at byte {self._position}")
        return count

    def skip_tagged_fields(self) -> None:
        """To be called at the end of every struct; classic structs have none."""
        self.tagged_fields()

    def tagged_fields(self) -> dict[int, bytes]:
        """The tagged fields at the end of a struct, by tag."""
        fields: dict[int, bytes] = {}
        if self._flexible:
            for _ in range(self._unsigned_varint()):
                tag = self._unsigned_varint()
                fields[tag] = self._take(self._unsigned_varint()) or b""
        return fields

    def _fixed(self, layout: struct.Struct) -> int:
        end = self._position + layout.size
        if end > len(self._data):
            raise SchemaError(f"{layout.size} bytes expected at byte {self._position} of {len(self._data)}")
        (value,) = layout.unpack_from(self._data, self._position)
        self._position = end
        return int(value)

    def _length(self, classic: struct.Struct) -> int:
        return self._unsigned_varint() - 1 if self._flexible else self._fixed(classic)

    def _take(self, length: int) -> bytes | None:
        if length == -1:
            return None
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise SchemaError(f"{length} bytes expected at byte {self._position} of {len(self._data)}")
        value = self._data[self._position : end]
        self._position = end
        return value

    def _unsigned_varint(self) -> int:
        value = shift = 0
        while shift <= _VARINT_SHIFT_MAX and self._position < len(self._data):
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise SchemaError(f"the varint before byte {self._position} does not end")


class Writer:
    """Builds one value, in the classic encoding unless `use_flexible` says otherwise."""

    __slots__ = ("_flexible", "_parts")

    def __init__(self) -> None:
        self._flexible = False
        self._parts: list[bytes] = []

    def use_flexible(self) -> Writer:
        """Lengths are varints from here on."""
        self._flexible = True
        return self

    def int8(self, value: int) -> Writer:
        self._parts.append(_INT8.pack(value))
        return self

    def int16(self, value: int) -> Writer:
        self._parts.append(_INT16.pack(value))
        return self

    def int32(self, value: int) -> Writer:
        self._parts.append(_INT32.pack(value))
        return self

    def int64(self, value: int) -> Writer:
        self._parts.append(_INT64.pack(value))
        return self

    def uuid(self, value: bytes) -> Writer:
        """16 bytes."""
        assert len(value) == 16, len(value)
        self._parts.append(value)
        return self

    def string(self, value: str) -> Writer:
        raw = value.encode()
        assert len(raw) <= STRING_BYTES_MAX, len(raw)
        self._parts += (self._length(_INT16, len(raw)), raw)
        return self

    def nullable_string(self, value: str | None) -> Writer:
        if value is not None:
            return self.string(value)
        self._parts.append(self._length(_INT16, -1))
        return self

    def bytes_(self, value: bytes) -> Writer:
        self._parts += (self._length(_INT32, len(value)), value)
        return self

    def array_count(self, count: int | None) -> Writer:
        """Before the elements; None: the array is null."""
        self._parts.append(self._length(_INT32, -1 if count is None else count))
        return self

    def tagged_fields(self, fields: Mapping[int, bytes]) -> Writer:
        """At the end of every flexible struct."""
        self._parts.append(_unsigned_varint(len(fields)))
        for tag, value in sorted(fields.items()):
            self._parts += (_unsigned_varint(tag), _unsigned_varint(len(value)), value)
        return self

    def build(self) -> bytes:
        return b"".join(self._parts)

    def _length(self, classic: struct.Struct, length: int) -> bytes:
        return _unsigned_varint(length + 1) if self._flexible else classic.pack(length)


def _unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
