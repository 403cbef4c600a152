from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.producer import ProducerConfig, SerializationError
from klamm.producer.intake import Intake, check_partition, check_topic_name
from klamm.records import RawRecord, encode_batch

InvalidTopicError = EXCEPTIONS[ErrorCode.INVALID_TOPIC_EXCEPTION]
MessageTooLargeError = EXCEPTIONS[ErrorCode.MESSAGE_TOO_LARGE]


def prepare(
    value: Any = None,
    key: Any = None,
    *,
    topic: Any = "t",
    timestamp_ms: Any = None,
    headers: Any = None,
    **settings: Any,
) -> tuple[RawRecord, int]:
    return Intake(ProducerConfig.parse(**settings)).prepare(topic, value, key, timestamp_ms, headers)


def test_record_without_timestamp_is_stamped_now() -> None:
    before_ms = time.time_ns() // 1_000_000
    (timestamp_ms, key, value, headers), _ = prepare(b"v", b"k")

    assert before_ms <= timestamp_ms <= time.time_ns() // 1_000_000
    assert (key, value, headers) == (b"k", b"v", ())


def test_serializers_are_not_called_for_null() -> None:
    settings = {"key_serializer": "int", "value_serializer": lambda value: str(value).encode()}

    assert prepare([1], 7, timestamp_ms=5, **settings)[0] == (5, b"\0\0\0\7", b"[1]", ())
    assert prepare(None, None, timestamp_ms=5, **settings)[0] == (5, None, None, ())


@pytest.mark.parametrize("content", [bytearray(b"x"), memoryview(b"x")])
def test_other_buffers_are_copied_to_bytes(content: bytearray | memoryview) -> None:
    (_, key, value, _), _ = prepare(content, content)

    assert (type(key), type(value)) == (bytes, bytes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": "text"}, r"value .* is str, not bytes; set value\.serializer"),
        ({"key": 5}, r"key .* is int, not bytes; set key\.serializer"),
        ({"value": 5, "value_serializer": "string"}, "value of a record for topic 't'"),
        ({"value": 5, "value_serializer": str}, "is str, not bytes"),
        ({"headers": {"a": b"x"}}, "expected pairs"),
        ({"headers": [("a", "x")]}, "expected pairs"),
        ({"headers": [(b"a", b"x")]}, "expected pairs"),
        ({"headers": [("\ud800", b"x")]}, "expected pairs"),
        ({"headers": 7}, "expected pairs"),
    ],
)
def test_a_key_or_value_that_is_not_bytes_is_refused_and_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        prepare(**arguments)


@pytest.mark.parametrize("timestamp_ms", [-1, 1.5, "now", 1 << 63])
def test_timestamp_must_be_milliseconds(timestamp_ms: object) -> None:
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_TIMESTAMP], match="timestamp_ms="):
        prepare(b"v", timestamp_ms=timestamp_ms)


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"max_request_size": 500}, "max.request.size allows 500"),
        ({"buffer_memory": 400}, "buffer.memory allows 400"),
    ],
)
def test_record_larger_than_the_limit_is_refused(settings: dict[str, int], limit: str) -> None:
    with pytest.raises(MessageTooLargeError, match=limit):
        prepare(b"x" * 501, **settings)


def test_headers_count_towards_the_limit() -> None:
    with pytest.raises(MessageTooLargeError):
        prepare(headers=[("h", b"x" * 500)], max_request_size=500)


@pytest.mark.parametrize("headers", [None, (), [("name", b"content"), ("ü", None)]])
def test_the_size_estimate_is_at_least_the_encoded_size(headers: Sequence[tuple[str, bytes | None]] | None) -> None:
    record, size_bytes = prepare(b"v" * 70, b"k" * 70, headers=headers)

    assert size_bytes >= len(encode_batch([record, record])) - len(encode_batch([record]))


@pytest.mark.parametrize("topic", ["", ".", "a b", "x" * 250, None, 5, b"t", ["t"]])
def test_bad_topic_name_is_refused(topic: object) -> None:
    with pytest.raises(InvalidTopicError):
        check_topic_name(topic)


def test_a_topic_that_is_not_a_string_is_refused_with_the_record() -> None:
    with pytest.raises(InvalidTopicError, match="not a string"):
        prepare(b"v", topic=["t"])


@pytest.mark.parametrize("partition", [-1, 1.0, "0", True])
def test_bad_partition_number_is_refused(partition: object) -> None:
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_PARTITIONS], match="partition="):
        check_partition(partition)
