"""Converts values of records to the types of JSON, for lines of text and for lines of JSON. Pure.

Bytes become text, with a backslash escape for each byte that is not UTF-8. Ids of 16 bytes become base64url, as Kafka
prints them.
"""

from __future__ import annotations

import dataclasses
import enum
import uuid
from collections.abc import Mapping, Set
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from klamm.model import TopicPartition
from klamm_broker.log.files.partition_metadata import encode_uuid
from klamm_coordinator.records.consumer_group_schemas import TopicIdPartition

_UUID_BYTES = 16


def plain(value: object) -> Any:
    """Returns `value` made of strings, numbers, lists and mappings with string keys."""
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, uuid.UUID):
        return encode_uuid(value)
    if isinstance(value, TopicPartition):
        return f"{value.topic}-{value.partition}"
    if isinstance(value, TopicIdPartition):
        return f"{_id(value.topic_id)}-{value.partition}"
    if isinstance(value, Message):
        return _message(value)
    return _composed(value)


def _composed(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(entry) for name, entry in value.items()}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(entry) for name, entry in value._asdict().items()}
    if isinstance(value, Set):
        return [plain(element) for element in sorted(value)]
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return str(value)


def _message(message: Message) -> dict[str, Any]:
    """Returns all fields of a message, also those with their default value. Absent optional fields are left out."""
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            continue
        if field.type == FieldDescriptor.TYPE_BYTES:
            fields[field.name] = [_id(element) for element in value] if field.is_repeated else _id(value)
        elif isinstance(value, Mapping):
            fields[field.name] = {str(name): plain(entry) for name, entry in sorted(value.items())}
        elif field.is_repeated:
            fields[field.name] = [plain(element) for element in value]
        else:
            fields[field.name] = plain(value)
    return fields


def _id(value: bytes) -> str:
    return encode_uuid(uuid.UUID(bytes=value)) if len(value) == _UUID_BYTES else value.hex()
