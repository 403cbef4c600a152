"""The serializers and deserializers that `key.serializer`, `value.deserializer` and similar settings accept.

A serializer is a function of one value, or the name of a function of this module. None (a null key, a tombstone) is
never passed to it. Numbers and UUIDs have the format of Kafka's serializers: big-endian numbers, and UUIDs as text."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final, Literal

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]
SerdeName = Literal["bytes", "string", "short", "int", "long", "float", "double", "json", "uuid"]
"""The names of the serializers and deserializers."""


def _bytes_only(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"expected bytes, got {type(value).__name__}; set a serializer for other types")


def _text(value: str) -> bytes:
    return value.encode()


def _number(layout: str) -> tuple[Serializer, Deserializer]:
    packer = struct.Struct(layout)

    def unpack(data: bytes) -> Any:
        return packer.unpack(data)[0]

    return packer.pack, unpack


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _uuid(value: uuid.UUID) -> bytes:
    return str(value).encode()


def _from_uuid(data: bytes) -> uuid.UUID:
    return uuid.UUID(data.decode())


_SERDES: Final[dict[str, tuple[Serializer, Deserializer]]] = {
    "bytes": (_bytes_only, bytes),
    "string": (_text, bytes.decode),
    "short": _number(">h"),
    "int": _number(">i"),
    "long": _number(">q"),
    "float": _number(">f"),
    "double": _number(">d"),
    "json": (_to_json, json.loads),
    "uuid": (_uuid, _from_uuid),
}


def parse_serializer(value: Any) -> Serializer | None:
    """Returns the configured serializer: a function, that of a name, or None (bytes stay as they are). Raises
    ValueError."""
    return _parse(value, 0)


def parse_deserializer(value: Any) -> Deserializer | None:
    """Returns the configured deserializer: a function, that of a name, or None (bytes stay as they are). Raises
    ValueError."""
    return _parse(value, 1)


def _parse(value: Any, side: int) -> Callable[[Any], Any] | None:
    if value is None or value == "bytes":
        return None
    if callable(value):
        function: Callable[[Any], Any] = value
        return function
    serde = _SERDES.get(value) if isinstance(value, str) else None
    if serde is None:
        raise ValueError(f"a function or one of {', '.join(_SERDES)}")
    return serde[side]
