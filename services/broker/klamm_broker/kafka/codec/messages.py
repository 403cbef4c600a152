"""Decodes and encodes messages by kio's schemas, for everything except the hot path.

kio has one dataclass for each version of each message. A handler returns the answer for the newest version, in plain
values (milliseconds, numbers of error codes, mappings for nested structures). Fields that an older version lacks are
left out.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import typing
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from klamm_broker.kafka.api import COLD_REQUEST_MAX_BYTES, ApiKey
from klamm_broker.kafka.codec.array_sizes import check_array_sizes
from klamm_broker.kafka.codec.fields import Fields
from klamm_broker.kafka.codec.schemas import request_schema, response_schema
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.requests import Request

_LONGER_THAN_READ: Final = frozenset({ApiKey.ALTER_USER_SCRAM_CREDENTIALS})
"""librdkafka 2.16 sends this request with an extra byte at its end. Kafka does not check the end of a request."""


def decode(request: Request) -> Any:
    """Returns the request's body as kio's dataclass of its version. Raises MalformedRequestError."""
    if len(request.frame) > COLD_REQUEST_MAX_BYTES:
        raise MalformedRequestError(
            f"the {request.api_key.name} request has {len(request.frame)} bytes; expected at most"
            f" {COLD_REQUEST_MAX_BYTES}"
        )
    check_array_sizes(request.api_key, request.version, request.frame, request.body_start)
    read = _request_reader(request.api_key, request.version)
    try:
        message, size = read(request.frame, request.body_start)
    except Exception as error:
        raise MalformedRequestError(f"{request.api_key.name} v{request.version}: {error}") from error
    if request.body_start + size != len(request.frame) and request.api_key not in _LONGER_THAN_READ:
        raise MalformedRequestError(
            f"{request.api_key.name} v{request.version}: the request has bytes after its last field"
        )
    return message


def encode(request: Request, answer: Fields) -> bytes:
    """Returns the body of the answer to `request`, in the request's version."""
    entity_class, write = _response_writer(request.api_key, request.version)
    buffer = io.BytesIO()
    if request.throttle is not None:
        answer = {**answer, "throttle_time": request.throttle.ms}
    write(buffer, _make(entity_class, answer))
    return buffer.getvalue()


def encode_error(request: Request, error: Fields) -> bytes | None:
    """Returns the body of an answer to `request` that contains only the fields in `error`, such as error_code. Returns
    None if answers of that version have no error_code."""
    entity_class, _ = _response_writer(request.api_key, request.version)
    if all(field.name != "error_code" for field in _plan(entity_class)):
        return None
    return encode(request, {**_nothing(entity_class), **error})


@functools.cache
def _request_reader(api_key: ApiKey, version: int) -> Callable[[memoryview, int], tuple[Any, int]]:
    return entity_reader(request_schema(api_key, version))


@functools.cache
def _response_writer(api_key: ApiKey, version: int) -> tuple[type, Callable[[io.BytesIO, Any], None]]:
    entity_class = response_schema(api_key, version)
    return entity_class, entity_writer(entity_class)


class _Field(NamedTuple):
    name: str
    convert: Callable[[Any], Any]
    is_required: bool


def _make(entity_class: type, values: Fields) -> Any:
    arguments = {}
    for name, convert, is_required in _plan(entity_class):
        if name in values:
            arguments[name] = convert(values[name])
        elif is_required:
            assert name == "throttle_time", f"{entity_class.__qualname__} needs {name}"
            arguments[name] = datetime.timedelta()
    return entity_class(**arguments)


@functools.cache
def _plan(entity_class: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(entity_class)
    return tuple(
        _Field(
            field.name,
            _converter(hints[field.name], field.metadata.get("kafka_type")),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(entity_class)
    )


@functools.cache
def _nothing(entity_class: type) -> Fields:
    """Returns empty values for the fields that have no default."""
    hints = typing.get_type_hints(entity_class)
    return {field.name: _none_of(hints[field.name]) for field in _plan(entity_class) if field.is_required}


def _none_of(hint: Any) -> Any:
    if type(None) in typing.get_args(hint):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    is_text, is_bytes = (isinstance(hint, type) and issubclass(hint, kind) for kind in (str, bytes))
    return "" if is_text else b"" if is_bytes else 0


def _converter(hint: Any, kafka_type: str | None) -> Callable[[Any], Any]:
    """Returns the function that converts a plain value for a field of that type."""
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None) and kind is not Ellipsis]
    if typing.get_origin(hint) is tuple or (kinds and typing.get_origin(kinds[0]) is tuple):
        item_hint = kinds[0] if typing.get_origin(hint) is tuple else typing.get_args(kinds[0])[0]
        return functools.partial(_tuple_of, _converter(item_hint, kafka_type))
    if kafka_type == "datetime_i64":
        return _point_in_time_or_none if type(None) in typing.get_args(hint) else _point_in_time
    plain = kinds[0] if kinds else hint
    if dataclasses.is_dataclass(plain) and isinstance(plain, type):
        return functools.partial(_make_or_none, plain)
    if kafka_type == "string" and plain is hint:
        return _text
    return _CONVERTERS.get(kafka_type or "", _unchanged)


def _tuple_of(convert: Callable[[Any], Any], values: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(map(convert, values))


def _make_or_none(entity_class: type, values: Fields | None) -> Any:
    return None if values is None else _make(entity_class, values)


def _text(value: str | None) -> str:
    """Returns the value of a field that cannot be null."""
    return value or ""


def _unchanged(value: Any) -> Any:
    return value


def _duration(value_ms: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value_ms)


def _point_in_time_or_none(value_ms: int | None) -> datetime.datetime | None:
    return None if value_ms is None or value_ms < 0 else _point_in_time(value_ms)


def _point_in_time(value_ms: int) -> datetime.datetime:
    """Returns the time of milliseconds since the epoch. In a field that cannot be null, -1 means that there is no
    time."""
    return datetime.datetime.fromtimestamp(value_ms // 1000, datetime.UTC) + _duration(value_ms % 1000)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "error_code": KioErrorCode,
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
}
