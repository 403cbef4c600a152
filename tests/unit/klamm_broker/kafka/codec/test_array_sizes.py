from __future__ import annotations

import dataclasses
import datetime
import io
import struct
import typing
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from klamm.kafka_types.reader import TAGGED_FIELDS_MAX
from klamm.kafka_types.writer import KafkaWriter
from klamm_broker.kafka.api import COLD_REQUEST_MAX_BYTES, ITEMS_MAX, ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.array_sizes import check_array_sizes
from klamm_broker.kafka.codec.schemas import request_schema
from klamm_broker.kafka.codec.wire import MalformedRequestError
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.served_apis import SPOKEN

BY_HAND = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS}
COLD = [
    (api_key, version)
    for api_key, spoken in SPOKEN.items()
    if api_key not in BY_HAND
    for version in range(spoken.min, spoken.max + 1)
]
VALUES = {
    "bool": True,
    "string": "abc",
    "bytes": b"xyz",
    "uuid": uuid.UUID(int=7),
    "float64": 1.5,
    "error_code": ErrorCode.none,
    "timedelta_i32": datetime.timedelta(milliseconds=5),
    "timedelta_i64": datetime.timedelta(milliseconds=5),
}


def example_of(schema: Any, *, nulls: bool) -> Any:
    """Returns a message whose arrays all have two items. `nulls` decides if its nullable fields are null."""
    hints = typing.get_type_hints(schema)
    return schema(
        **{
            field.name: value_of(hints[field.name], field.metadata.get("kafka_type"), nulls)
            for field in dataclasses.fields(schema)
        }
    )


def value_of(hint: Any, kafka_type: str | None, nulls: bool) -> Any:
    kinds = typing.get_args(hint)
    if type(None) in kinds:
        return None if nulls else value_of(next(kind for kind in kinds if kind is not type(None)), kafka_type, nulls)
    if typing.get_origin(hint) is tuple:
        return (value_of(kinds[0], kafka_type, nulls),) * 2
    if dataclasses.is_dataclass(hint):
        return example_of(hint, nulls=nulls)
    return VALUES.get(kafka_type or "", 3)


def encoded(api_key: ApiKey, version: int, *, nulls: bool) -> bytes:
    schema = request_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, example_of(schema, nulls=nulls))
    return buffer.getvalue()


@pytest.mark.parametrize(("api_key", "version"), COLD)
def test_a_request_that_ends_before_its_arrays_is_malformed(api_key: ApiKey, version: int) -> None:
    for nulls in (False, True):
        whole = b"header" + encoded(api_key, version, nulls=nulls)
        check_array_sizes(api_key, version, memoryview(whole), 6)
        for end in range(6, len(whole)):
            with pytest.raises(MalformedRequestError):
                check_array_sizes(api_key, version, memoryview(whole[:end]), 6)


@pytest.mark.parametrize(("api_key", "version"), [(ApiKey.UPDATE_FEATURES, 1), (ApiKey.LIST_OFFSETS, 1)])
def test_a_null_array_is_refused_where_null_is_not_allowed(api_key: ApiKey, version: int) -> None:
    body = {ApiKey.UPDATE_FEATURES: bytes(7), ApiKey.LIST_OFFSETS: b"\xff" * 8}[api_key]
    with pytest.raises(MalformedRequestError, match="null"):
        messages.decode(Request(api_key, version, 1, "", "", memoryview(body), 0, False))


# kio alone reserves memory for billions of items here, and aborts the process.
@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.DELETE_TOPICS, 6, "fffe9bcf797101e7"),
        (ApiKey.DELETE_TOPICS, 5, "ffe2bb805e7f7f7f"),
        (ApiKey.HEARTBEAT, 4, "ffe2bb805e7f7f7f"),
        (ApiKey.DELETE_GROUPS, 0, "7fffffff00016100"),
        (ApiKey.DELETE_GROUPS, 2, "ffffffffff7f"),
    ],
)
def test_an_array_that_claims_billions_of_items_is_malformed(api_key: ApiKey, version: int, body: str) -> None:
    request = Request(
        api_key, version, 1, "", "", memoryview(bytes.fromhex(body)), 0, version >= SPOKEN[api_key].flexible
    )
    with pytest.raises(MalformedRequestError):
        messages.decode(request)


def test_requests_other_than_produce_have_their_own_size_limit() -> None:
    body = b"\x00" * (COLD_REQUEST_MAX_BYTES + 1)
    with pytest.raises(MalformedRequestError, match="expected at most"):
        messages.decode(Request(ApiKey.HEARTBEAT, 0, 1, "", "", memoryview(body), 0, False))


def array_of(count: int) -> Request:
    """Returns a DeleteGroups with that many empty ids."""
    body = count.to_bytes(4, "big") + bytes(2 * count)
    return Request(ApiKey.DELETE_GROUPS, 0, 1, "", "", memoryview(body), 0, False)


def test_the_tagged_fields_of_a_request_have_a_limit() -> None:
    many = TAGGED_FIELDS_MAX // 2 + 1

    def body(*counts: int) -> memoryview:
        """Returns a DescribeTopicPartitions. Each of its topics has the next of the counts as its tagged fields."""
        writer = KafkaWriter(flexible=True)
        writer.array_size(len(counts))
        whole = bytes(writer.value())
        for count in counts:
            topic = KafkaWriter(flexible=True)
            topic.string("t")
            topic.unsigned_varint(count)
            whole += bytes(topic.value()) + b"\x07\x00" * count
        return memoryview(whole + struct.pack(">ib", 10, -1) + b"\x00")

    check_array_sizes(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body(many, many - 2), 0)
    with pytest.raises(MalformedRequestError, match="more than 10000 tagged fields"):
        check_array_sizes(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body(many, many), 0)


def test_an_array_has_a_limit_whatever_the_size_of_its_items() -> None:
    assert len(messages.decode(array_of(ITEMS_MAX)).groups_names) == ITEMS_MAX
    with pytest.raises(MalformedRequestError, match="expected at most 100000"):
        messages.decode(array_of(ITEMS_MAX + 1))
