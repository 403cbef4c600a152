"""Tests which records are decoded many at a time, and where such a run must stop."""

from __future__ import annotations

import pytest

from klamm.records import HEADER_SIZE_BYTES, RawRecord, encode_batch
from klamm.records.record import Columns
from klamm.records.runs import RUN_RECORDS_MIN, parse_run


def run_lengths(records: list[RawRecord]) -> list[int]:
    """Returns the lengths of the runs from the first record, until no run begins."""
    data = encode_batch(records)[HEADER_SIZE_BYTES:]
    columns, position, lengths = Columns(), 0, []
    while (taken := sum(lengths)) < len(records):
        end = parse_run(columns, data, position, len(records) - taken)
        if end == position:
            break
        lengths.append(len(columns.offset_deltas) - taken)
        position = end
    spans = zip(columns.value_starts, columns.value_lengths, strict=True)
    values = [data[start : start + length] for start, length in spans]
    assert values == [value for _, _, value, _ in records[: sum(lengths)]]
    assert columns.offset_deltas == list(range(sum(lengths)))
    assert columns.timestamp_deltas == [record[0] - records[0][0] for record in records[: sum(lengths)]]
    return lengths


def records_of(count: int, *, step_ms: int = 0, key: bytes | None = None) -> list[RawRecord]:
    return [(n * step_ms, key, b"%05d" % n, ()) for n in range(count)]


def test_a_run_ends_where_offset_deltas_take_another_byte() -> None:
    assert run_lengths(records_of(10_000)) == [64, 8192 - 64, 10_000 - 8192]


def test_a_run_ends_where_timestamp_deltas_take_another_byte() -> None:
    assert run_lengths(records_of(60, step_ms=2)) == [32, 28]


def test_timestamps_may_rise_and_fall_within_a_run() -> None:
    assert run_lengths([(1000 + (-1) ** n * (n % 60), None, b"value", ()) for n in range(64)]) == [64]


@pytest.mark.parametrize(
    "odd",
    [
        (0, b"k", b"vwxyz", (("h", b""),)),
        (0, b"k", b"vwxy", ()),
        (0, b"kk", b"vwxyz", ()),
        (0, b"kk", b"vwxy", ()),
        (0, None, b"vwxyzz", ()),
        (0, b"k", None, ()),
        (-70, b"k", b"vwxy", ()),
    ],
)
def test_a_run_ends_before_a_record_of_another_layout(odd: RawRecord) -> None:
    """Some of these records have the size of the others, and only their fields are at other positions."""
    assert run_lengths([*records_of(20, key=b"k"), odd, *records_of(10, key=b"k")]) == [20]


def test_a_record_of_equal_size_with_shifted_fields_ends_the_run() -> None:
    """The shorter timestamp moves every field by one byte, and the key has the bytes of the former fixed fields."""
    first: RawRecord = (0, None, b"12345", ())
    plain: list[RawRecord] = [(100, None, b"%05d" % n, ()) for n in range(20)]
    mimic: RawRecord = (1, b"\x01\x0a12", b"45", ())
    deltas = [*range(21), 30, *range(31, 51)]
    data = encode_batch([first, *plain, mimic, *plain], offset_deltas=deltas)[HEADER_SIZE_BYTES:]
    start = data[0] // 2 + 1
    record_size = data[start] // 2 + 1
    assert len(data) == start + 41 * record_size
    columns = Columns()
    end = parse_run(columns, data, start, 41)
    assert end == start + 20 * record_size
    assert columns.offset_deltas == list(range(1, 21))


def test_few_records_or_records_with_headers_are_not_decoded_as_a_run() -> None:
    assert run_lengths(records_of(RUN_RECORDS_MIN - 1)) == []
    assert run_lengths(records_of(RUN_RECORDS_MIN)) == [RUN_RECORDS_MIN]
    assert run_lengths([(0, None, b"v", (("h", b"x"),))] * 40) == []
