"""Kafka's primitive encodings, as far as the schemas of `__consumer_offsets` need them.

Two families share the fixed-width integers (big endian) and differ in how lengths are written:

    classic    string: int16 length, -1 is null    bytes: int32 length    array: int32 count
    flexible   string, bytes, array: unsigned varint of length + 1, 0 is null; each struct ends in tagged fields

Tagged fields are skipped when read (KIP-482: a reader ignores the tags it does not know).
"""

from __future__ import annotations

import struct

from klamm.errors import KlammError

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

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

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
        count = self._length(_INT32)
        if not 0 <= count <= len(self._data) - self._position:
            raise SchemaError(f"an array of {count} elements does not fit at byte {self._position}")
        return count

    def skip_tagged_fields(self) -> None:
        """To be called at the end of every struct; classic structs have none."""
        if self._flexible:
            for _ in range(self._unsigned_varint()):
                self._unsigned_varint()
                self._take(self._unsigned_varint())

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
    """Builds one value in the classic encoding, which is the one that is written."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int16(self, value: int) -> Writer:
        self._parts.append(_INT16.pack(value))
        return self

    def int32(self, value: int) -> Writer:
        self._parts.append(_INT32.pack(value))
        return self

    def int64(self, value: int) -> Writer:
        self._parts.append(_INT64.pack(value))
        return self

    def string(self, value: str) -> Writer:
        raw = value.encode()
        assert len(raw) <= STRING_BYTES_MAX, len(raw)
        self._parts += (_INT16.pack(len(raw)), raw)
        return self

    def nullable_string(self, value: str | None) -> Writer:
        return self.int16(-1) if value is None else self.string(value)

    def bytes_(self, value: bytes) -> Writer:
        self._parts += (_INT32.pack(len(value)), value)
        return self

    def build(self) -> bytes:
        return b"".join(self._parts)
