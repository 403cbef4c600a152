"""Tests transaction markers: the bytes that Kafka's broker writes, and the reading of other bytes."""

from __future__ import annotations

import pytest

from klamm.records import (
    ControlRecord,
    ControlRecordType,
    InvalidRecordError,
    decode_batch,
    decode_control_record,
    encode_control_record,
    end_transaction_marker,
    validate_records,
)


def test_the_key_and_value_of_a_marker_have_kafkas_bytes() -> None:
    assert encode_control_record(ControlRecordType.ABORT, 5) == (b"\0\0\0\0", b"\0\0\0\0\0\x05")
    assert encode_control_record(ControlRecordType.COMMIT, -1) == (b"\0\0\0\x01", b"\0\0\xff\xff\xff\xff")


@pytest.mark.parametrize("control_type", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_a_marker_round_trips_through_its_batch(control_type: ControlRecordType) -> None:
    batch = end_transaction_marker(
        control_type,
        producer_id=11,
        producer_epoch=2,
        coordinator_epoch=9,
        timestamp_ms=1234,
        base_offset=50,
        partition_leader_epoch=6,
    )
    header = validate_records(batch)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, -1)
    assert (header.base_offset, header.partition_leader_epoch) == (50, 6)
    (record,) = decode_batch(batch)
    assert (record.offset, record.timestamp_ms) == (50, 1234)
    assert decode_control_record(record.key, record.value) == ControlRecord(type=control_type, coordinator_epoch=9)


@pytest.mark.parametrize("key", [b"\0\0\0\x02", b"\0\0\0\x05", b"\0\0\xff\xff", b"\0\x07\0\x63more"])
def test_control_record_types_of_later_versions_are_unknown(key: bytes) -> None:
    assert decode_control_record(key, None) == ControlRecord(type=ControlRecordType.UNKNOWN, coordinator_epoch=-1)


def test_bytes_appended_by_later_versions_are_ignored() -> None:
    marker = decode_control_record(b"\0\x01\0\x01new", b"\0\x01\0\0\0\x03new")
    assert marker == ControlRecord(type=ControlRecordType.COMMIT, coordinator_epoch=3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\0"),
        (b"", b"\0\0\0\0\0\0"),
        (b"\0\0\0", b"\0\0\0\0\0\0"),
        (b"\xff\xff\0\0", b"\0\0\0\0\0\0"),
        (b"\0\0\0\0", None),
        (b"\0\0\0\0", b"\0\0\0\0\0"),
        (b"\0\0\0\0", b"\xff\xff\0\0\0\0"),
    ],
)
def test_damaged_markers_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        decode_control_record(key, value)
