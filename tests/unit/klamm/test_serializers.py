from __future__ import annotations

import uuid
from typing import Any

import pytest

from klamm.serializers import parse_deserializer, parse_serializer


@pytest.mark.parametrize(
    ("name", "value", "data"),
    [
        ("string", "grün", "grün".encode()),
        ("short", -2, b"\xff\xfe"),
        ("int", 1, b"\0\0\0\1"),
        ("long", 1, b"\0\0\0\0\0\0\0\1"),
        ("float", 1.0, b"\x3f\x80\0\0"),
        ("double", 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        ("json", {"a": ["ü", None]}, '{"a":["ü",null]}'.encode()),
        ("uuid", uuid.UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
    ],
)
def test_named_serdes_write_kafkas_bytes_and_read_them_back(name: str, value: Any, data: bytes) -> None:
    serialize, deserialize = parse_serializer(name), parse_deserializer(name)
    assert serialize is not None
    assert deserialize is not None

    assert serialize(value) == data
    assert deserialize(data) == value


@pytest.mark.parametrize("value", [None, "bytes"])
def test_bytes_need_no_serde(value: str | None) -> None:
    assert parse_serializer(value) is None
    assert parse_deserializer(value) is None


def test_a_function_is_used_as_the_serializer() -> None:
    assert parse_serializer(str.encode) is str.encode


@pytest.mark.parametrize("value", ["avro", 5, object()])
def test_an_unknown_serializer_is_refused_with_the_known_names(value: object) -> None:
    with pytest.raises(ValueError, match="a function or one of bytes, string"):
        parse_serializer(value)
