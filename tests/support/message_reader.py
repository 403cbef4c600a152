"""Reads Kafka's messages into kio's dataclasses if kio's own reader rejects them. kio rejects a time of -1, which
stands for no time, in a field that cannot be null. This reader leaves times as milliseconds."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import struct
import typing
import uuid
from typing import Any

from kio.schema.errors import ErrorCode

_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "uint32": struct.Struct(">I"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
    "error_code": struct.Struct(">h"),
    "timedelta_i32": struct.Struct(">i"),
    "timedelta_i64": struct.Struct(">q"),
    "datetime_i64": struct.Struct(">q"),
}


class MessageReader:
    """Reads a message from one position on."""

    def __init__(self, data: memoryview, position: int, *, flexible: bool) -> None:
        self._data = data
        self._flexible = flexible
        self.position = position

    def entity(self, entity_class: type) -> Any:
        """Reads one structure of that class, including tagged fields."""
        values = {}
        tagged = {}
        for field, hint in _fields(entity_class):
            if (tag := field.metadata.get("tag")) is None:
                values[field.name] = self._field(hint, field.metadata.get("kafka_type"))
            else:
                tagged[tag] = field, hint
        for _ in range(self._varint() if self._flexible else 0):
            tag, size = self._varint(), self._varint()
            end = self.position + size
            if tag in tagged:
                field, hint = tagged[tag]
                values[field.name] = self._field(hint, field.metadata.get("kafka_type"))
            self.position = end
        return entity_class(**values)

    def _field(self, hint: Any, kafka_type: str | None) -> Any:
        kinds = [kind for kind in typing.get_args(hint) if kind not in (type(None), Ellipsis)]
        if typing.get_origin(hint) is tuple:
            return self._array(kinds[0], kafka_type)
        if kinds and typing.get_origin(kinds[0]) is tuple:
            return self._array(typing.get_args(kinds[0])[0], kafka_type)
        plain = kinds[0] if kinds else hint
        if dataclasses.is_dataclass(plain) and isinstance(plain, type):
            is_nullable = type(None) in typing.get_args(hint)
            return None if is_nullable and self._number("int8") < 0 else self.entity(plain)
        assert kafka_type is not None
        return self._value(kafka_type)

    def _array(self, hint: Any, kafka_type: str | None) -> tuple[Any, ...] | None:
        size = self._varint() - 1 if self._flexible else self._number("int32")
        return None if size < 0 else tuple(self._field(hint, kafka_type) for _ in range(size))

    def _value(self, kafka_type: str) -> Any:
        if kafka_type in ("string", "bytes", "records"):
            return self._bytes(kafka_type)
        if kafka_type == "uuid":
            value = uuid.UUID(bytes=bytes(self._take(16)))
            return value if value.int else None
        number = self._number(kafka_type)
        if kafka_type == "error_code":
            return ErrorCode(number)
        return datetime.timedelta(milliseconds=number) if kafka_type.startswith("timedelta") else number

    def _bytes(self, kafka_type: str) -> str | bytes | None:
        if self._flexible:
            size = self._varint() - 1
        else:
            size = self._number("int16" if kafka_type == "string" else "int32")
        if size < 0:
            return None
        data = bytes(self._take(size))
        return data.decode() if kafka_type == "string" else data

    def _number(self, kafka_type: str) -> Any:
        number = _NUMBERS[kafka_type]
        return number.unpack(self._take(number.size))[0]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, size: int) -> memoryview:
        assert self.position + size <= len(self._data), "the message is cut"
        self.position += size
        return self._data[self.position - size : self.position]


@functools.cache
def _fields(entity_class: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(entity_class)
    return [(field, hints[field.name]) for field in dataclasses.fields(entity_class)]
