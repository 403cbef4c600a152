"""Tests how fetched batches become records."""

from __future__ import annotations

import json

import pytest

from klamm.consumer.errors import BatchTooLargeError, CorruptRecordError, RecordDeserializationError
from klamm.consumer.fetch.fetch_buffer import FetchedData, last_header
from klamm.consumer.fetch.fetched_data_reader import FetchedDataReader, ReaderConfig
from klamm.model import TopicPartition
from klamm.records import (
    ChecksumMismatchError,
    CompressionType,
    ControlRecordType,
    TimestampType,
    encode_batch,
    end_transaction_marker,
)

TP = TopicPartition("t", 3)


def batch(first: int, values: list[bytes | None], **more) -> bytes:
    rows = [(1_000 + number, b"k", value, (("h", b"x"),)) for number, value in enumerate(values)]
    return encode_batch(rows, base_offset=first, **more)


def reader(*batches: bytes, fetch_offset: int = 0, aborted=(), **config) -> FetchedDataReader:
    view = memoryview(b"".join(batches))
    data = FetchedData(
        tp=TP,
        position_epoch=1,
        fetch_offset=fetch_offset,
        batches=view,
        next_offset=last_header(view).next_offset,
        leader_epoch=last_header(view).partition_leader_epoch,
        aborted_transactions=tuple(aborted),
    )
    return FetchedDataReader(data, ReaderConfig(**config))


def drain(one: FetchedDataReader, at_once: int = 2) -> list:
    records = []
    while not one.exhausted:
        records += one.read(at_once)
    return records


def offsets(one: FetchedDataReader, at_once: int = 2) -> list[int]:
    return [record.offset for record in drain(one, at_once)]


def test_a_record_has_all_fields_of_its_batch():
    one = reader(batch(5, [b"v"], partition_leader_epoch=9), fetch_offset=5)
    (record,) = one.read(10)
    assert record.topic_partition == TP
    assert (record.offset, record.timestamp, record.timestamp_type) == (5, 1_000, TimestampType.CREATE_TIME)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"x"),))
    assert record.leader_epoch == one.leader_epoch == 9


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize("compression", list(CompressionType))
def test_each_read_advances_the_next_offset_past_its_last_record(at_once, compression):
    one = reader(batch(0, [b"a", b"b", b"c"], compression=compression), batch(3, [b"d"], compression=compression))
    seen = []
    while not one.exhausted:
        taken = one.read(at_once)
        assert len(taken) <= at_once
        seen += [record.offset for record in taken]
        assert one.next_offset == seen[-1] + 1
    assert seen == [0, 1, 2, 3]


def test_records_before_the_fetch_offset_are_left_out():
    assert offsets(reader(batch(0, [b"a", b"b", b"c"]), fetch_offset=2)) == [2]


def test_a_record_with_a_null_value_is_returned():
    (record,) = drain(reader(batch(0, [None])))
    assert record.value is None


def test_control_batches_advance_the_next_offset_and_return_no_record():
    marker = end_transaction_marker(
        ControlRecordType.COMMIT,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=0,
        base_offset=2,
    )
    one = reader(batch(0, [b"a", b"b"]), marker)
    assert offsets(one) == [0, 1]
    assert one.read(1) == []
    assert one.next_offset == 3


def transactional(first: int, producer_id: int, count: int = 2) -> bytes:
    return batch(
        first,
        [b"t"] * count,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def end(first: int, producer_id: int, kind: ControlRecordType) -> bytes:
    return end_transaction_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=first
    )


def test_read_committed_skips_only_aborted_transactions():
    log = [
        transactional(0, producer_id=1),
        transactional(2, producer_id=2),
        batch(4, [b"plain"]),
        end(5, 1, ControlRecordType.ABORT),
        transactional(6, producer_id=1),
        end(8, 2, ControlRecordType.COMMIT),
        end(9, 1, ControlRecordType.COMMIT),
    ]
    assert offsets(reader(*log, aborted=[(1, 0)], read_committed=True)) == [2, 3, 4, 6, 7]
    assert offsets(reader(*log, aborted=[(1, 0)])) == [0, 1, 2, 3, 4, 6, 7]


def test_an_aborted_transaction_that_began_before_the_fetch_offset_is_skipped():
    log = [transactional(10, producer_id=1), end(12, 1, ControlRecordType.ABORT), transactional(13, producer_id=1)]
    assert offsets(reader(*log, fetch_offset=10, aborted=[(1, 4)], read_committed=True)) == [13, 14]


def test_two_aborted_transactions_of_one_producer_in_one_fetch_are_skipped():
    log = [
        transactional(0, 1),
        end(2, 1, ControlRecordType.ABORT),
        transactional(3, 1),
        end(5, 1, ControlRecordType.ABORT),
        transactional(6, 1),
        end(8, 1, ControlRecordType.COMMIT),
    ]
    assert offsets(reader(*log, aborted=[(1, 3), (1, 0)], read_committed=True)) == [6, 7]


def test_deserializers_are_not_called_for_null():
    one = reader(batch(0, [b"[1]", None]), key_deserializer=bytes.decode, value_deserializer=json.loads)
    assert [(record.key, record.value) for record in drain(one)] == [("k", [1]), ("k", None)]


def test_a_deserializer_error_stops_before_its_record_and_repeats_on_each_read():
    one = reader(batch(0, [b"1", b"2", b"no", b"4"]), value_deserializer=int)
    assert [record.value for record in one.read(10)] == [1, 2]
    assert one.next_offset == 2
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match="on t-3 at offset 2") as raised:
            one.read(10)
    assert (raised.value.topic_partition, raised.value.offset) == (TP, 2)
    assert isinstance(raised.value.__cause__, ValueError)
    assert not one.exhausted


def test_a_deserializer_error_on_the_first_record_of_a_batch_keeps_the_batch_before():
    one = reader(batch(0, [b"1"]), batch(1, [b"no"]), value_deserializer=int)
    assert [record.value for record in one.read(10)] == [1]
    assert one.next_offset == 1
    with pytest.raises(RecordDeserializationError) as raised:
        one.read(10)
    assert raised.value.offset == 1


def test_records_before_a_damaged_batch_are_returned_before_its_error():
    damaged = bytearray(batch(2, [b"c"]))
    damaged[-1] ^= 1
    one = reader(batch(0, [b"a", b"b"]), bytes(damaged))
    assert [record.offset for record in one.read(10)] == [0, 1]
    with pytest.raises(CorruptRecordError, match="t-3 at offset 2") as raised:
        one.read(10)
    assert isinstance(raised.value.__cause__, ChecksumMismatchError)


def test_checksums_are_verified_only_with_check_crcs():
    damaged = bytearray(batch(0, [b"c"]))
    damaged[17] ^= 1
    assert offsets(reader(bytes(damaged), check_crcs=False)) == [0]


def test_a_batch_that_is_too_large_when_decompressed_is_named_with_the_setting():
    large = batch(2, [bytes(100_000), b"d"], compression=CompressionType.ZSTD)
    one = reader(batch(0, [b"a", b"b"]), large, max_decompressed_bytes=100_000)
    assert [record.offset for record in one.read(10)] == [0, 1]
    named = r"t-3 at offset 2 .* max\.decompressed\.batch\.bytes=100000"
    for _ in range(2):
        with pytest.raises(BatchTooLargeError, match=named) as raised:
            one.read(10)
    assert (raised.value.topic_partition, raised.value.offset, raised.value.next_offset) == (TP, 2, 4)
    assert offsets(reader(large, fetch_offset=2, max_decompressed_bytes=101_000)) == [2, 3]


@pytest.mark.parametrize("compression", [CompressionType.GZIP, CompressionType.ZSTD])
def test_all_that_a_broker_accepts_is_read_by_default(compression):
    large = batch(0, [bytes(100 << 20), b"b"], compression=compression)
    assert [len(record.value) for record in drain(reader(large))] == [100 << 20, 1]
