"""Checks the arrays of a request by its schema, before kio decodes it.

Each array must have as many items as it claims, and may be null only if the schema allows it. kio checks neither. Its
reader reserves memory for all items that an array claims, so five bytes of a client could end the process. All arrays
of a request together have at most `items_max` items, because each may take more memory and time than its bytes do. For
the same reason, a request has at most `TAGGED_FIELDS_MAX` tagged fields.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from klamm.kafka_types.reader import TAGGED_FIELDS_MAX
from klamm_broker.kafka.api import ApiKey, items_max
from klamm_broker.kafka.codec.schemas import request_schema
from klamm_broker.kafka.codec.wire import MalformedRequestError

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_VARINT_SHIFT_MAX: Final = 28
_FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


class _Allowed:
    """What one request may still have."""

    __slots__ = ("items", "items_max", "tagged_fields")

    def __init__(self, items: int) -> None:
        self.items = self.items_max = items
        self.tagged_fields = TAGGED_FIELDS_MAX


_Skip = Callable[[memoryview, int, _Allowed], int]
"""A function of a message, the position of a field, and what the request may still have. It returns the field's end,
which is beyond the message if the field is cut off."""


def check_array_sizes(api_key: ApiKey, version: int, message: memoryview, start: int) -> None:
    """Checks a request's body, which begins at `start`. Raises MalformedRequestError if an array or field is
    incomplete."""
    try:
        end = _skip_request(api_key, version)(message, start, _Allowed(items_max(api_key)))
    except (IndexError, struct.error):
        raise MalformedRequestError(
            f"malformed request: the message ends inside a field, at byte {len(message)}"
        ) from None
    if end > len(message):
        raise MalformedRequestError(
            f"malformed request: the message has {len(message)} bytes, but its last field ends at byte {end}"
        )


@cache
def _skip_request(api_key: ApiKey, version: int) -> _Skip:
    return _entity(request_schema(api_key, version))


def _entity(schema: Any) -> _Skip:
    """Returns a function that skips an entity field by field. It skips neighbouring fields of fixed size in one
    step."""
    flexible: bool = schema.__flexible__
    hints = typing.get_type_hints(schema)
    steps: list[_Skip] = []
    fixed_bytes = 0
    for field in dataclasses.fields(schema):
        assert "tag" not in field.metadata, f"{schema.__qualname__}.{field.name} is tagged: not checked here"
        kafka_type = field.metadata.get("kafka_type")
        is_array = typing.get_origin(_not_none(hints[field.name])) is tuple
        if kafka_type in _FIXED_BYTES and not is_array:
            fixed_bytes += _FIXED_BYTES[kafka_type]
            continue
        if fixed_bytes:
            steps.append(_fixed(fixed_bytes))
            fixed_bytes = 0
        steps.append(_field(hints[field.name], kafka_type, flexible))
    if fixed_bytes:
        steps.append(_fixed(fixed_bytes))
    if flexible:
        steps.append(_skip_tags)
    return _one_after_another(tuple(steps))


def _field(hint: Any, kafka_type: str | None, flexible: bool) -> _Skip:
    plain = _not_none(hint)
    if typing.get_origin(plain) is tuple:
        item = typing.get_args(plain)[0]
        may_be_null = plain is not hint
        if kafka_type in _FIXED_BYTES:
            return _array(None, _FIXED_BYTES[kafka_type], flexible, may_be_null)
        return _array(_field(item, kafka_type, flexible), 1, flexible, may_be_null)
    if dataclasses.is_dataclass(plain):
        inner = _entity(plain)
        return inner if plain is hint else _nullable(inner)
    if kafka_type == "string":
        return _skip_compact if flexible else _skip_string
    assert kafka_type in ("bytes", "records"), kafka_type
    return _skip_compact if flexible else _skip_bytes


def _not_none(hint: Any) -> Any:
    """Returns `T` for `T | None`, and other hints unchanged."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0] if type(None) in typing.get_args(hint) else hint


def _one_after_another(steps: tuple[_Skip, ...]) -> _Skip:
    def skip(message: memoryview, position: int, allowed: _Allowed) -> int:
        for step in steps:
            position = step(message, position, allowed)
        return position

    return skip


def _fixed(size: int) -> _Skip:
    return lambda message, position, allowed: position + size


def _array(item: _Skip | None, item_bytes_min: int, flexible: bool, may_be_null: bool) -> _Skip:
    """Skips an array. Without `item` each item has exactly `item_bytes_min` bytes."""

    def skip(message: memoryview, position: int, allowed: _Allowed) -> int:
        count, position = _compact_size(message, position) if flexible else _int32(message, position)
        if count < 0 and not may_be_null:
            raise MalformedRequestError(f"malformed request: the array before byte {position} is null; expected items")
        if count * item_bytes_min > len(message) - position:
            raise MalformedRequestError(
                f"malformed request: an array announces {count} items, but only {len(message) - position} bytes are"
                " left"
            )
        allowed.items -= max(0, count)
        if allowed.items < 0:
            raise MalformedRequestError(
                f"the arrays of the request have {allowed.items_max - allowed.items} items or more; expected at most"
                f" {allowed.items_max}"
            )
        if item is None:
            return position + max(0, count) * item_bytes_min
        for _ in range(count):
            position = item(message, position, allowed)
        return position

    return skip


def _nullable(inner: _Skip) -> _Skip:
    """Skips a nullable structure. The byte before it is negative if the structure is null."""
    return lambda message, position, allowed: (
        inner(message, position + 1, allowed) if message[position] < 128 else position + 1
    )


def _skip_string(message: memoryview, position: int, allowed: _Allowed) -> int:
    (size,) = _INT16.unpack_from(message, position)
    return position + _INT16.size + max(0, int(size))


def _skip_bytes(message: memoryview, position: int, allowed: _Allowed) -> int:
    size, position = _int32(message, position)
    return position + max(0, size)


def _skip_compact(message: memoryview, position: int, allowed: _Allowed) -> int:
    size, position = _compact_size(message, position)
    return position + max(0, size)


def _skip_tags(message: memoryview, position: int, allowed: _Allowed) -> int:
    count, position = _varint(message, position)
    allowed.tagged_fields -= count
    if allowed.tagged_fields < 0:
        raise MalformedRequestError(
            f"malformed request: more than {TAGGED_FIELDS_MAX} tagged fields, {count} of them at byte {position}"
        )
    for _ in range(count):
        _, position = _varint(message, position)
        size, position = _varint(message, position)
        position += size
    return position


def _int32(message: memoryview, position: int) -> tuple[int, int]:
    return _INT32.unpack_from(message, position)[0], position + _INT32.size


def _compact_size(message: memoryview, position: int) -> tuple[int, int]:
    size, position = _varint(message, position)
    return size - 1, position


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _VARINT_SHIFT_MAX:
            raise MalformedRequestError(f"malformed request: the length before byte {position} has more than 5 bytes")
