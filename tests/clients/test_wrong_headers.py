"""Batches whose header has one wrong field under a right checksum, as some clients seal them. Klamm and Apache Kafka
answer the same, store the same header, and keep the records as long as their own timestamps say.

Klamm's half is among the tests, Kafka's is run by `make clients` and holds what is expected here to be true."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from klamm.checksum import crc32c
from klamm.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from klamm.records import BatchHeader, CompressionType, encode_batch, read_header
from klamm.records.header import (
    ATTRIBUTES_POSITION,
    CONTROL_MASK,
    CRC,
    CRC_POSITION,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE_BYTES,
    TIMESTAMP_TYPE_MASK,
)
from klamm_broker.kafka.api import ApiKey
from tests.clients.scenarios import TIMEOUT_MS, create_topic
from tests.support.apache_kafka import ApacheKafka, running_kafka
from tests.support.go_programs import SARAMA_1_45
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.waiting import patience, wait_until

PRODUCE_VERSION, FETCH_VERSION = 11, 12
ENDLESS_BYTES = 1 << 20
DELTAS_MS = (0, 5, 3)
"""The timestamps of the records after that of the first one."""
RIGHT = {"last_offset_delta": 2, "base_timestamp": 0, "max_timestamp": 5, "record_count": 3, "attributes": 0}
"""The fields of the right header. The timestamps are relative to that of the first record."""
HOUR_MS = 3_600_000
RETENTION = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "100"}
INVALID_RECORD = ErrorCode.invalid_record
EXPECTED: Mapping[str, Mapping[str, int] | ErrorCode] = {
    "nothing": RIGHT,
    "no largest timestamp": RIGHT,
    "largest timestamp 0": RIGHT,
    "the first record's timestamp": RIGHT,
    "a later timestamp": RIGHT,
    "a timestamp in thirty years": RIGHT,
    "another base timestamp": {**RIGHT, "base_timestamp": -7, "max_timestamp": -2},
    "a leader epoch": RIGHT,
    "LogAppendTime": RIGHT,
    "a delete horizon": {**RIGHT, "attributes": DELETE_HORIZON_MASK},
    "unknown attributes": {**RIGHT, "attributes": 0x80},
    "a smaller last offset": INVALID_RECORD,
    "a larger last offset": INVALID_RECORD,
    "fewer records": INVALID_RECORD,
    "more records": INVALID_RECORD,
    "no records": INVALID_RECORD,
    "a producer without an epoch": RIGHT,
    "a producer without a sequence": INVALID_RECORD,
    "a producer without both": INVALID_RECORD,
    "a negative epoch": ErrorCode.invalid_producer_epoch,
    "a negative sequence": INVALID_RECORD,
    "an epoch without a producer": RIGHT,
    "a sequence without a producer": RIGHT,
    "another negative producer": RIGHT,
    "an unknown producer": RIGHT,
    "an unknown producer's later sequence": RIGHT,
    "control": INVALID_RECORD,
    "a producer's control": INVALID_RECORD,
}


def wrong_headers(header: BatchHeader) -> dict[str, BatchHeader]:
    """Returns the header with each wrong field."""
    first_ms = header.base_timestamp_ms
    return {
        "nothing": header,
        "no largest timestamp": header._replace(max_timestamp_ms=-1),
        "largest timestamp 0": header._replace(max_timestamp_ms=0),
        "the first record's timestamp": header._replace(max_timestamp_ms=first_ms),
        "a later timestamp": header._replace(max_timestamp_ms=first_ms + 1_000),
        "a timestamp in thirty years": header._replace(max_timestamp_ms=first_ms + 10**12),
        "another base timestamp": header._replace(base_timestamp_ms=first_ms - 7),
        "a leader epoch": header._replace(partition_leader_epoch=9),
        "LogAppendTime": header._replace(attributes=header.attributes | TIMESTAMP_TYPE_MASK),
        "a delete horizon": header._replace(attributes=header.attributes | DELETE_HORIZON_MASK),
        "unknown attributes": header._replace(attributes=header.attributes | 0x80),
        "a smaller last offset": header._replace(last_offset_delta=1),
        "a larger last offset": header._replace(last_offset_delta=3),
        "fewer records": header._replace(last_offset_delta=1, record_count=2),
        "more records": header._replace(last_offset_delta=3, record_count=4),
        "no records": header._replace(last_offset_delta=-1, record_count=0),
        "a producer without an epoch": of_producer(header, 1_001, -1, 0),
        "a producer without a sequence": of_producer(header, 1_002, 0, -1),
        "a producer without both": of_producer(header, 1_003, -1, -1),
        "a negative epoch": of_producer(header, 1_004, -2, 0),
        "a negative sequence": of_producer(header, 1_005, 0, -2),
        "an epoch without a producer": of_producer(header, -1, 3, -1),
        "a sequence without a producer": of_producer(header, -1, -1, 5),
        "another negative producer": of_producer(header, -2, 0, 0),
        "an unknown producer": of_producer(header, 1_006, 4, 0),
        "an unknown producer's later sequence": of_producer(header, 1_007, 0, 9),
        "control": header._replace(attributes=header.attributes | CONTROL_MASK),
        "a producer's control": of_producer(header._replace(attributes=header.attributes | CONTROL_MASK), 1_008, 0, 0),
    }


def of_producer(header: BatchHeader, producer_id: int, producer_epoch: int, base_sequence: int) -> BatchHeader:
    return header._replace(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


def sealed(header: BatchHeader, records: bytes) -> bytes:
    """Returns the batch of this header and these records, with a right checksum."""
    head = bytearray(HEADER.pack(*header._replace(crc=0)))
    CRC.pack_into(head, CRC_POSITION, crc32c(records, crc32c(bytes(head[ATTRIBUTES_POSITION:]))))
    return bytes(head) + records


class Topic:
    """A topic of one side, and the end offset of its one partition."""

    def __init__(self, wire: KafkaWire, name: str, configs: Mapping[str, str] | None = None) -> None:
        self._wire, self._name = wire, name
        create_topic(wire, name, configs=configs)
        self._end_offset = 0

    def produce(self, batch: bytes) -> Any:
        """Returns the answer of the partition."""
        topic = {"name": self._name, "partition_data": [{"index": 0, "records": batch}]}
        asked = {"transactional_id": None, "acks": -1, "timeout": TIMEOUT_MS, "topic_data": [topic]}
        (answer,) = self._wire.ask(ApiKey.PRODUCE, PRODUCE_VERSION, asked).responses[0].partition_responses
        return answer

    def offset(self, timestamp_ms: int) -> int:
        """Returns the offset of a timestamp, which may be one of Kafka's special values."""
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}
        topic = {"name": self._name, "partitions": [partition]}
        asked = {"replica_id": -1, "isolation_level": 0, "topics": [topic]}
        offset: int = self._wire.ask(ApiKey.LIST_OFFSETS, 7, asked).topics[0].partitions[0].offset
        return offset

    def stored(self, batch: bytes, now_ms: int) -> Mapping[str, int] | ErrorCode:
        """Produces a batch. Returns its header as it is stored, or the error code."""
        answer = self.produce(batch)
        if answer.error_code != ErrorCode.none:
            return ErrorCode(answer.error_code)
        assert answer.base_offset == self._end_offset
        header = read_header(self._fetched())
        assert (header.base_offset, header.partition_leader_epoch) == (self._end_offset, 0)
        self._end_offset = header.next_offset
        return {
            "last_offset_delta": header.last_offset_delta,
            "base_timestamp": header.base_timestamp_ms - now_ms,
            "max_timestamp": header.max_timestamp_ms - now_ms,
            "record_count": header.record_count,
            "attributes": header.attributes & ~header.compression,
        }

    def _fetched(self) -> bytes:
        """Returns the batch at the end offset."""
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": self._end_offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": ENDLESS_BYTES,
        }
        asked = {
            "replica_id": -1,
            "max_wait": TIMEOUT_MS,
            "min_bytes": 1,
            "max_bytes": ENDLESS_BYTES,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self._name, "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        records = self._wire.ask(ApiKey.FETCH, FETCH_VERSION, asked).responses[0].partitions[0].records
        return bytes(records)


def answers(wire: KafkaWire, name: str, compression: CompressionType) -> dict[str, Any]:
    """Returns what `Topic.stored` returns for each wrong header."""
    topic, now_ms = Topic(wire, name), int(time.time() * 1000)
    right = encode_batch([(now_ms + delta, b"k", b"v", ()) for delta in DELTAS_MS], compression=compression)
    records = right[HEADER_SIZE_BYTES:]
    return {
        what: topic.stored(sealed(header, records), now_ms)
        for what, header in wrong_headers(read_header(right)).items()
    }


every_compression = pytest.mark.parametrize("compression", CompressionType)


@every_compression
def test_klamm_stores_the_right_header(klamm_node: KlammProcess, name: str, compression: CompressionType) -> None:
    with KafkaWire(klamm_node.kafka_bootstrap) as wire:
        assert answers(wire, name, compression) == EXPECTED


@pytest.mark.clients
@pytest.mark.timeout(600)
@every_compression
def test_apache_kafka_stores_the_right_header(
    apache_kafka: ApacheKafka, name: str, compression: CompressionType
) -> None:
    with KafkaWire(apache_kafka.bootstrap) as wire:
        assert answers(wire, name, compression) == EXPECTED


def old_batch(timestamp_ms: int) -> bytes:
    """Returns a batch that retention deletes `HOUR_MS` after its timestamp."""
    return encode_batch([(timestamp_ms, b"k", b"v", ())])


def wait_for_retention(wire: KafkaWire, timestamp_ms: int) -> None:
    """Waits until retention has run twice after records with this timestamp have expired. It has deleted such records
    of two topics then, one after the other."""
    for number in range(2):
        old = Topic(wire, f"old-{number}", {"retention.ms": str(HOUR_MS)})
        assert old.produce(old_batch(timestamp_ms)).error_code == ErrorCode.none
        wait_until(lambda old=old: old.offset(EARLIEST_TIMESTAMP) == 1)


def check_retention(bootstrap: str) -> None:
    """Sends fresh records in batches whose header says that they are old. They must be there after retention has
    run."""
    with KafkaWire(bootstrap) as wire:
        fresh = Topic(wire, "fresh", {"retention.ms": str(HOUR_MS)})
        now_ms = int(time.time() * 1000)
        right = encode_batch([(now_ms + delta, b"k", b"v", ()) for delta in DELTAS_MS])
        header = read_header(right)
        for wrong_ms in (-1, 0, now_ms - 2 * HOUR_MS):
            batch = sealed(header._replace(max_timestamp_ms=wrong_ms), right[HEADER_SIZE_BYTES:])
            assert fresh.produce(batch).error_code == ErrorCode.none
        wait_for_retention(wire, now_ms - 2 * HOUR_MS)
        assert fresh.offset(EARLIEST_TIMESTAMP) == 0
        assert fresh.offset(now_ms + max(DELTAS_MS)) == 1


def check_sarama(bootstrap: str) -> None:
    """Sends a record that soon expires, and then records with a sarama that sets no largest timestamp. They must be
    there after retention has run."""
    with KafkaWire(bootstrap) as wire:
        topic = Topic(wire, "sarama", {"retention.ms": str(HOUR_MS)})
        soon_ms = int(time.time() * 1000) - HOUR_MS + 5_000
        assert topic.produce(old_batch(soon_ms)).error_code == ErrorCode.none
        subprocess.run(SARAMA_1_45.command(bootstrap, "sarama", "16"), check=True, timeout=patience())
        wait_for_retention(wire, soon_ms)
        assert topic.offset(LATEST_TIMESTAMP) == 17
        # On a busy machine, the first record may have expired before the others came.
        assert topic.offset(EARLIEST_TIMESTAMP) in (0, 1)


@pytest.mark.timeout(600)
def test_klamm_keeps_fresh_records_whose_header_says_that_they_are_old(tmp_path: Path) -> None:
    with running_cluster(tmp_path, RETENTION) as klamm:
        check_retention(klamm.kafka_bootstrap)


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_apache_kafka_keeps_fresh_records_whose_header_says_that_they_are_old(tmp_path: Path) -> None:
    with running_kafka(tmp_path, settings=RETENTION) as kafka:
        check_retention(kafka.bootstrap)


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_klamm_keeps_fresh_records_of_a_sarama_that_sets_no_largest_timestamp(tmp_path: Path) -> None:
    with running_cluster(tmp_path, RETENTION) as klamm:
        check_sarama(klamm.kafka_bootstrap)


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_apache_kafka_keeps_fresh_records_of_a_sarama_that_sets_no_largest_timestamp(tmp_path: Path) -> None:
    with running_kafka(tmp_path, settings=RETENTION) as kafka:
        check_sarama(kafka.bootstrap)
