"""Tests the search for timestamps in undecoded records, against the codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.records import BatchHeader, InvalidRecordError, decode_batch, encode_batch, read_header
from klamm.records.header import HEADER_SIZE_BYTES
from klamm.records.record_times import check_count, first_record_from, largest_timestamp_ms
from klamm.records.varint import VARLONG_BYTES_MAX, decode_length, decode_varint

NOW = 1_700_000_000_000
STEPS = st.sampled_from([0, 0, 0, 1, -3, 40, 5_000, 2**40])
SIZES = st.sampled_from([0, 1, 60, 70, 130, 9_000])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Draws batches of runs: some records of one size, then some of another."""
    timestamp_ms, records = NOW, []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(SIZES)
        for _ in range(draw(st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 200]))):
            timestamp_ms += draw(STEPS)
            records.append((timestamp_ms, b"k" if size % 2 else None, bytes(size), ()))
    deltas = [3 * number for number in range(len(records))] if draw(st.booleans()) else None
    return encode_batch(records, base_offset=100, offset_deltas=deltas)


def parts(batch: bytes) -> tuple[BatchHeader, bytes]:
    return read_header(batch), batch[HEADER_SIZE_BYTES:]


@given(batches())
def test_the_largest_timestamp_is_that_of_the_decoded_records(batch: bytes) -> None:
    header, records = parts(batch)
    check_count(header, records)
    assert largest_timestamp_ms(header, records) == max(record.timestamp_ms for record in decode_batch(batch))


@given(batches(), st.data())
def test_the_first_record_from_a_time_on_is_that_of_the_decoded_records(batch: bytes, data: st.DataObject) -> None:
    decoded = decode_batch(batch)
    timestamp_ms = data.draw(st.sampled_from(decoded)).timestamp_ms + data.draw(st.integers(-1, 1))
    start_offset = data.draw(st.sampled_from(decoded)).offset + data.draw(st.integers(-1, 1))
    expected = [
        (record.timestamp_ms, record.offset)
        for record in decoded
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset
    ]
    found = first_record_from(*parts(batch), timestamp_ms, start_offset)
    assert found == (expected[0] if expected else None)


def some(count: int) -> Sequence[tuple[int, bytes | None, bytes | None, tuple[()]]]:
    return [(NOW + number, b"key", b"value", ()) for number in range(count)]


@pytest.mark.parametrize("count", [1, 3, 40, 3_000])
@pytest.mark.parametrize("wrong", [1, 1_000_000_000])
def test_a_wrong_number_of_records_is_found(count: int, wrong: int) -> None:
    header, records = parts(encode_batch(some(count)))
    with pytest.raises(InvalidRecordError, match="do not end where"):
        largest_timestamp_ms(header._replace(record_count=count + wrong), records)


@pytest.mark.parametrize("count", [1, 3, 40, 100])
@pytest.mark.parametrize("read", [check_count, largest_timestamp_ms])
def test_records_that_are_cut_off_or_followed_by_others_are_found(
    read: Callable[[BatchHeader, bytes], object], count: int
) -> None:
    header, records = parts(encode_batch(some(count)))
    for damaged in (records[:-1], records[: len(records) // 2], records + b"\0", b""):
        with pytest.raises(InvalidRecordError):
            read(header, damaged)


def walked(header: BatchHeader, data: bytes) -> int | None:
    """Returns the largest timestamp, which is found record by record. Returns None if the data are not the header's
    number of records."""
    at, largest = 0, -(2**63)
    try:
        for _ in range(header.record_count):
            length, body_at = decode_length(data, at)
            delta, _ = decode_varint(data, body_at + 1, VARLONG_BYTES_MAX)
            at, largest = body_at + length, max(largest, header.base_timestamp_ms + delta)
    except (IndexError, InvalidRecordError):
        return None
    return largest if at == len(data) else None


@given(st.sampled_from([1, 2, 30, 70, 130]), st.sampled_from([0, 50, 60, 200]), st.data())
def test_a_changed_byte_is_never_overlooked(count: int, value_bytes: int, data: st.DataObject) -> None:
    header, records = parts(encode_batch([(NOW, b"key", bytes(value_bytes), ())] * count))
    changed = bytearray(records)
    changed[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    expected = walked(header, bytes(changed))
    try:
        assert largest_timestamp_ms(header, bytes(changed)) == expected
    except InvalidRecordError:
        assert expected is None or not -(2**63) < expected < 2**63


@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_are_records_or_an_invalid_record(data: bytes, count: int) -> None:
    header, _ = parts(encode_batch(some(1)))
    try:
        largest_timestamp_ms(header._replace(record_count=count), data)
    except InvalidRecordError:
        return
    assert len(data) >= 7 * count


def test_a_timestamp_of_more_than_64_bits_is_refused() -> None:
    header, records = parts(encode_batch([(0, b"k", b"v", ()), (2**62, b"k", b"v", ())]))
    with pytest.raises(InvalidRecordError, match="more than 64 bits"):
        largest_timestamp_ms(header._replace(base_timestamp_ms=2**62), records)
