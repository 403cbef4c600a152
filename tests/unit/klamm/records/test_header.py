"""Tests batch headers: reading, iterating, patching in place, and checking a batch without its records."""

from __future__ import annotations

import pytest

from klamm.records import (
    HEADER_SIZE_BYTES,
    PREFIX_SIZE_BYTES,
    ChecksumMismatchError,
    CompressionType,
    RawRecord,
    TimestampType,
    TruncatedBatchError,
    assign_offset,
    decode_batch,
    encode_batch,
    increment_sequence,
    iter_headers,
    last_header,
    offset_prefix,
    read_header,
    set_log_append_time,
    validate_batch,
)

RECORDS: list[RawRecord] = [(100, b"k1", b"v1", ()), (90, None, b"v2", ()), (130, b"k3", None, (("h", b"x"),))]


def test_a_header_has_the_fields_of_the_encoded_batch() -> None:
    batch = encode_batch(
        RECORDS,
        base_offset=40,
        partition_leader_epoch=7,
        compression=CompressionType.ZSTD,
        producer_id=5,
        producer_epoch=6,
        base_sequence=8,
        is_transactional=True,
    )
    header = read_header(batch)
    assert header.size_bytes == len(batch) == header.batch_length + 12
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 42, 43)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (100, 130)
    assert (header.partition_leader_epoch, header.magic, header.record_count) == (7, 2, 3)
    assert (header.producer_id, header.producer_epoch) == (5, 6)
    assert (header.base_sequence, header.last_sequence) == (8, 10)
    assert header.compression is CompressionType.ZSTD
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (header.is_transactional, header.is_control) == (True, False)


def test_sequences_wrap_to_zero_after_the_largest_int32() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 2, 1) == 2**31 - 1
    assert increment_sequence(5, 10) == 15
    batch = encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 0
    assert read_header(encode_batch(RECORDS)).last_sequence == -1


def test_a_header_can_be_read_before_its_records_are_there() -> None:
    batch = encode_batch(RECORDS)
    assert read_header(batch[:HEADER_SIZE_BYTES]).size_bytes == len(batch)
    with pytest.raises(TruncatedBatchError, match="61"):
        read_header(batch[: HEADER_SIZE_BYTES - 1])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_batch_is_read_from_any_buffer_type_and_position(kind: type) -> None:
    batch = encode_batch(RECORDS)
    buffer = kind(b"before" + batch + b"after")
    assert validate_batch(buffer, 6) == read_header(buffer, 6) == read_header(batch)
    assert decode_batch(buffer, 6) == decode_batch(batch)
    assert list(iter_headers(buffer, 6, 6 + len(batch))) == [(6, read_header(batch))]


def test_iter_headers_yields_position_and_header_of_each_batch() -> None:
    batches = [encode_batch(RECORDS[:count], base_offset=10 * count) for count in (1, 2, 3)]
    walked = list(iter_headers(b"".join(batches)))
    assert [position for position, _ in walked] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [header.base_offset for _, header in walked] == [10, 20, 30]
    assert list(iter_headers(b"")) == []


def test_assigning_offset_and_epoch_leaves_the_checksum_valid() -> None:
    batch = bytearray(b"xx" + encode_batch(RECORDS))
    assign_offset(batch, 2, base_offset=10**12, partition_leader_epoch=44)
    header = validate_batch(batch, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (10**12, 44)
    assert [record.offset for record in decode_batch(batch, 2)] == [10**12, 10**12 + 1, 10**12 + 2]


def test_a_prefix_replaces_the_first_bytes_of_an_immutable_batch() -> None:
    batch = encode_batch(RECORDS)
    prefix = offset_prefix(77, read_header(batch).batch_length, 3)
    assert len(prefix) == PREFIX_SIZE_BYTES
    assert prefix + batch[PREFIX_SIZE_BYTES:] == encode_batch(RECORDS, base_offset=77, partition_leader_epoch=3)


def test_log_append_time_is_set_in_the_batch_and_its_checksum() -> None:
    batch = bytearray(encode_batch(RECORDS))
    set_log_append_time(batch, 5000)
    header = validate_batch(batch)
    assert (header.timestamp_type, header.max_timestamp_ms) == (TimestampType.LOG_APPEND_TIME, 5000)
    assert header.base_timestamp_ms == 100
    assert {record.timestamp_ms for record in decode_batch(batch)} == {5000}


def test_the_checksum_is_not_verified_without_check_crc() -> None:
    batch = bytearray(encode_batch(RECORDS))
    batch[17] ^= 1
    with pytest.raises(ChecksumMismatchError):
        decode_batch(batch)
    assert len(decode_batch(batch, check_crc=False)) == 3


def test_a_batch_emptied_by_compaction_keeps_its_offsets_and_producer() -> None:
    batch = encode_batch(
        [], base_offset=10, last_offset_delta=4, compression=CompressionType.LZ4, producer_id=3, producer_epoch=1
    )
    assert len(batch) == HEADER_SIZE_BYTES
    header = validate_batch(batch, allow_gaps=True)
    assert (header.next_offset, header.record_count, header.producer_id) == (15, 0, 3)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (-1, -1)
    assert header.compression is CompressionType.NONE
    assert decode_batch(batch) == []


def test_an_empty_batch_without_a_last_offset_delta_is_refused() -> None:
    with pytest.raises(ValueError, match="last_offset_delta"):
        encode_batch([])


def test_last_header_returns_the_last_of_any_number_of_batches():
    batches = [encode_batch([(0, None, b"x" * size, ())], base_offset=10 * size) for size in range(5)]

    assert [last_header(b"".join(batches[:count])) for count in range(6)] == [
        None,
        *(read_header(batch) for batch in batches),
    ]


@pytest.mark.parametrize("cut", [1, 60, 61, 62])
def test_the_last_header_of_a_torn_log_is_refused(cut):
    batch = encode_batch([(0, None, b"value", ())])

    with pytest.raises(TruncatedBatchError):
        last_header(batch + batch[:cut])
