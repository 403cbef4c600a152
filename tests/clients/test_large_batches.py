"""Batches that are small when they are sent, and a hundred megabytes when they are decompressed. Klamm and Apache Kafka
answer the same, and Kafka's clients and Klamm's read the same records.

Klamm's half is among the tests, Kafka's is run by `make clients` and holds what is expected here to be true."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition as KafkaPartition
from kio.schema.errors import ErrorCode

from klamm import TopicPartition
from klamm.model import MAX_TIMESTAMP
from klamm.records import HEADER_SIZE_BYTES, CompressionType, RawRecord, encode_batch, read_header
from klamm.records.keys import parse_keys
from klamm.records.varint import decode_length
from klamm_broker.kafka.api import ApiKey
from tests.clients.test_wrong_headers import Topic, sealed
from tests.support.apache_kafka import ApacheKafka, running_kafka
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.reading import read_all
from tests.support.waiting import patience, wait_until

MIB = 1 << 20
SIZES = (3, 100 * MIB, 700_000, 5)
"""The sizes of the values of a batch. One is much larger than a piece, and one a little smaller."""
DELTAS_MS = (0, 2_000, 1_000, 500)
ROOM = {"max.message.bytes": str(8 * MIB)}
"""Snappy makes records at most twenty times smaller."""
HOUR_MS = 3_600_000
EXPECTED: Mapping[str, Any] = {
    "plain": ErrorCode.none,
    "offsets by time": [0, 1, 1, 1, -1],
    "largest timestamp": 1,
    "compacted": ErrorCode.none,
    "compacted, without a key": (ErrorCode.invalid_record, [2]),
    "old": (ErrorCode.invalid_timestamp, [3]),
    "new": (ErrorCode.invalid_timestamp, [1]),
    "other compression": ErrorCode.none,
    "no compression": ErrorCode.message_too_large,
    "limited": ErrorCode.invalid_record,
    "limited, with the broker's time": ErrorCode.invalid_record,
    "limited exactly": ErrorCode.none,
    "another count": ErrorCode.invalid_record,
}
every_compression = pytest.mark.parametrize(
    "compression", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)


def rows(now_ms: int) -> list[RawRecord]:
    return [
        (now_ms + delta_ms, b"key %d" % number, b"%d" % number * size, (("h", b"x"),))
        for number, (delta_ms, size) in enumerate(zip(DELTAS_MS, SIZES, strict=True))
    ]


def answers(wire: KafkaWire, name: str, compression: CompressionType) -> dict[str, Any]:
    now_ms = int(time.time() * 1000)
    records = rows(now_ms)
    batch = encode_batch(records, compression=compression)
    largest_bytes = size_of_record(encode_batch(records), 1)

    def produced(what: str, data: bytes, **configs: str) -> Any:
        topic = Topic(
            wire, f"{name}-{what}", {**ROOM, **{key.replace("_", "."): value for key, value in configs.items()}}
        )
        answer = topic.produce(data)
        refused = [error.batch_index for error in answer.record_errors]
        return (ErrorCode(answer.error_code), refused) if refused else ErrorCode(answer.error_code)

    plain = Topic(wire, name, ROOM)
    without_key = [
        (at, None if number == 2 else key, value, headers) for number, (at, key, value, headers) in enumerate(records)
    ]
    old = [(at - HOUR_MS * (number == 3), *rest) for number, (at, *rest) in enumerate(records)]
    new = [(at + 5 * HOUR_MS * (number == 1), *rest) for number, (at, *rest) in enumerate(records)]
    other = CompressionType.GZIP if compression is CompressionType.ZSTD else CompressionType.ZSTD
    return {
        "plain": ErrorCode(plain.produce(batch).error_code),
        "offsets by time": [plain.offset(now_ms + later_ms) for later_ms in (0, 1, 1_001, 2_000, 2_001)],
        "largest timestamp": plain.offset(MAX_TIMESTAMP),
        "compacted": produced("compacted", batch, cleanup_policy="compact"),
        "compacted, without a key": produced(
            "no-key", encode_batch(without_key, compression=compression), cleanup_policy="compact"
        ),
        "old": produced("old", encode_batch(old, compression=compression), message_timestamp_before_max_ms="1000000"),
        "new": produced("new", encode_batch(new, compression=compression)),
        "other compression": produced("other", batch, compression_type=other.config_name),
        "no compression": produced("none", batch, compression_type="uncompressed"),
        "limited": produced("limited", batch, max_decompressed_message_bytes=str(largest_bytes - 1)),
        "limited, with the broker's time": produced(
            "stamped",
            batch,
            max_decompressed_message_bytes=str(largest_bytes - 1),
            message_timestamp_type="LogAppendTime",
        ),
        "limited exactly": produced("exactly", batch, max_decompressed_message_bytes=str(largest_bytes)),
        "another count": produced("count", more_records(batch)),
    }


def size_of_record(batch: bytes, index: int) -> int:
    """Returns the size that a record states."""
    data = batch[HEADER_SIZE_BYTES:]
    length, _ = decode_length(data, parse_keys(read_header(batch), data).starts[index])
    return length


def more_records(batch: bytes) -> bytes:
    """Returns the batch with a header that states one record more."""
    header = read_header(batch)
    more = header._replace(record_count=header.record_count + 1, last_offset_delta=header.last_offset_delta + 1)
    return sealed(more, batch[HEADER_SIZE_BYTES:])


@pytest.mark.timeout(600)
@every_compression
def test_klamm_answers_for_large_batches(klamm_node: KlammProcess, name: str, compression: CompressionType) -> None:
    with KafkaWire(klamm_node.kafka_bootstrap) as wire:
        assert answers(wire, name, compression) == EXPECTED


@pytest.mark.clients
@pytest.mark.timeout(600)
@every_compression
def test_apache_kafka_answers_for_large_batches(
    apache_kafka: ApacheKafka, name: str, compression: CompressionType
) -> None:
    with KafkaWire(apache_kafka.bootstrap) as wire:
        assert answers(wire, name, compression) == EXPECTED


def read_by_librdkafka(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes, int]]:
    """Returns the offset, key, and size of the value of the first `count` records."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "g",
        "enable.auto.commit": False,
        "fetch.max.bytes": 200 * MIB,
        "receive.message.max.bytes": 300 * MIB,
    }
    consumer = KafkaConsumer(settings)
    try:
        consumer.assign([KafkaPartition(topic, 0, 0)])
        found = []
        deadline_s = time.monotonic() + patience()
        while len(found) < count and time.monotonic() < deadline_s:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                found.append((message.offset(), message.key(), len(message.value() or b"")))
        return found
    finally:
        consumer.close()


@pytest.mark.timeout(600)
@every_compression
@pytest.mark.parametrize("is_by_broker", [False, True])
def test_clients_of_both_kinds_read_large_batches(
    klamm_node: KlammProcess, name: str, compression: CompressionType, is_by_broker: bool
) -> None:
    """The producer compresses the batch, or the broker compresses it again."""
    records = rows(int(time.time() * 1000))
    configs, sent = {}, compression
    if is_by_broker:
        configs["compression.type"] = compression.config_name
        sent = CompressionType.GZIP if compression is CompressionType.ZSTD else CompressionType.ZSTD
    with KafkaWire(klamm_node.kafka_bootstrap) as wire:
        answer = Topic(wire, name, {**ROOM, **configs}).produce(encode_batch(records, compression=sent))
        assert answer.error_code == ErrorCode.none
    expected = [(number, b"key %d" % number, size) for number, size in enumerate(SIZES)]
    found = read_all(klamm_node.bootstrap, [TopicPartition(name, 0)])
    assert [(one.offset, one.key, len(one.value)) for one in found] == expected
    assert [one.value for one in found] == [value for _, _, value, _ in records]
    assert read_by_librdkafka(klamm_node.kafka_bootstrap, name, len(SIZES)) == expected


CLEANER = {"log.cleaner.backoff.ms": "300"}


def check_compaction(bootstrap: str) -> None:
    """Produces a large batch, and other records. Then the topic gets compacted."""
    configs = {**ROOM, "segment.bytes": str(MIB), "min.cleanable.dirty.ratio": "0.0001"}
    now_ms = int(time.time() * 1000)

    def one(key: bytes, value: bytes | None) -> bytes:
        return encode_batch([(now_ms, key, value, ())])

    with KafkaWire(bootstrap) as wire:
        topic = Topic(wire, "large", configs)
        batches = [one(b"a", b"1"), encode_batch(rows(now_ms), compression=CompressionType.ZSTD)]
        batches += [one(b"key 0", b"new"), one(b"key 3", None)]
        batches += [one(b"filler %d" % number, bytes(700_000)) for number in range(3)]
        assert {topic.produce(batch).error_code for batch in batches} == {ErrorCode.none}
        set_config(wire, "large", "cleanup.policy", "compact")
        left = [0, 2, 3, 5, 6, 7, 8, 9]
        wait_until(lambda: [at for at, _, _ in read_by_librdkafka(bootstrap, "large", len(left))] == left)
        keys_and_sizes = [(key, size) for _, key, size in read_by_librdkafka(bootstrap, "large", len(left))]
        assert keys_and_sizes[:5] == [
            (b"a", 1),
            (b"key 1", SIZES[1]),
            (b"key 2", SIZES[2]),
            (b"key 0", 3),
            (b"key 3", 0),
        ]
        assert topic.offset(now_ms + max(DELTAS_MS)) == topic.offset(MAX_TIMESTAMP) == 2


def set_config(wire: KafkaWire, topic: str, name: str, value: str) -> None:
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == ErrorCode.none


@pytest.mark.timeout(600)
def test_klamm_compacts_large_batches(tmp_path: Path) -> None:
    with running_cluster(tmp_path, CLEANER) as klamm:
        check_compaction(klamm.kafka_bootstrap)


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_apache_kafka_compacts_large_batches(tmp_path: Path) -> None:
    with running_kafka(tmp_path, settings=CLEANER) as kafka:
        check_compaction(kafka.bootstrap)
