"""Parses the decompressed records of a batch into columns: the positions of keys and values, and the deltas.

Every consumer runs this loop for every record. So it is long and flat, and calls no function for numbers of one or two
bytes. Lengths are not checked one by one, because positions only grow. If the parts of a record do not end where its
length says, the check at its end fails. If the data end early, an IndexError is raised."""

from __future__ import annotations

from typing import Final

from klamm.records.errors import InvalidRecordError
from klamm.records.record import Columns, Headers
from klamm.records.runs import RUN_RECORDS_MIN, parse_run
from klamm.records.varint import (
    LENGTH_1,
    LENGTH_2,
    NUMBER_1,
    NUMBER_2,
    VARLONG_BYTES_MAX,
    decode_length,
    decode_varint,
)

_PATIENCE_FACTOR: Final = 4
"""After a search that found nothing, the number of records skipped before the next search grows by this factor."""


def parse_records(data: bytes, count: int) -> Columns:
    """Returns the columns of the `count` records in `data`. Raises InvalidRecordError."""
    columns = Columns()
    position = 0
    one_by_one = RUN_RECORDS_MIN
    try:
        while remaining := count - len(columns.offset_deltas):
            run_end = parse_run(columns, data, position, remaining)
            if run_end == position:
                run_end = _parse_each(columns, data, position, min(remaining, one_by_one))
                one_by_one *= _PATIENCE_FACTOR
            position = run_end
    except IndexError:
        raise InvalidRecordError(f"{len(data)} bytes end before the last of {count} records does") from None
    if position != len(data):
        raise InvalidRecordError(f"{len(data) - position} bytes follow the last of {count} records")
    return columns


def _parse_each(columns: Columns, data: bytes, position: int, count: int) -> int:  # noqa: C901
    """Appends the next `count` records, one by one; returns the position after them."""
    add_timestamp_delta = columns.timestamp_deltas.append
    add_offset_delta = columns.offset_deltas.append
    add_key_start, add_key_length = columns.key_starts.append, columns.key_lengths.append
    add_value_start, add_value_length = columns.value_starts.append, columns.value_lengths.append
    at = position
    for _ in range(count):
        low = data[at]
        if low < 128:
            at += 1
            end = at + LENGTH_1[low]
        elif (high := data[at + 1]) < 128:
            at += 2
            end = at + LENGTH_2[high][low]
        else:
            length, at = decode_length(data, at)
            end = at + length
        at += 1  # skip the unused attributes

        low = data[at]
        if low < 128:
            at += 1
            add_timestamp_delta(NUMBER_1[low])
        elif (high := data[at + 1]) < 128:
            at += 2
            add_timestamp_delta(NUMBER_2[high][low])
        else:
            delta, at = decode_varint(data, at, VARLONG_BYTES_MAX)
            add_timestamp_delta(delta)

        low = data[at]
        if low < 128:
            at += 1
            add_offset_delta(NUMBER_1[low])
        elif (high := data[at + 1]) < 128:
            at += 2
            add_offset_delta(NUMBER_2[high][low])
        else:
            delta, at = decode_varint(data, at)
            add_offset_delta(delta)

        low = data[at]
        if low < 128:
            at += 1
            length = LENGTH_1[low]
        elif (high := data[at + 1]) < 128:
            at += 2
            length = LENGTH_2[high][low]
        else:
            length, at = decode_length(data, at)
        add_key_start(at)
        add_key_length(length)
        if length > 0:
            at += length

        low = data[at]
        if low < 128:
            at += 1
            length = LENGTH_1[low]
        elif (high := data[at + 1]) < 128:
            at += 2
            length = LENGTH_2[high][low]
        else:
            length, at = decode_length(data, at)
        add_value_start(at)
        add_value_length(length)
        if length > 0:
            at += length

        if data[at]:
            headers, at = parse_headers(data, at)
            if headers:
                columns.headers[len(columns.offset_deltas) - 1] = headers
        else:
            at += 1
        if at != end:
            index = len(columns.offset_deltas) - 1
            raise InvalidRecordError(f"record {index} ends at byte {at} of the records, by its length at {end}")
    return at


def parse_headers(data: bytes, position: int) -> tuple[Headers, int]:
    """Returns the headers whose count is at `position`, and the position after them. Invalid UTF-8 in a name is
    replaced, as in Kafka."""
    count, at = decode_varint(data, position)
    if not 0 <= count <= len(data) - at:
        raise InvalidRecordError(f"{count} headers at byte {position} of the records")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        if (low := data[at]) < 128:
            length = LENGTH_1[low]
            at += 1
        else:
            length, at = decode_length(data, at)
        if length < 0:
            raise InvalidRecordError(f"a header name is null before byte {at} of the records")
        name = data[at : at + length].decode("utf-8", "replace")
        at += length
        if (low := data[at]) < 128:
            length = LENGTH_1[low]
            at += 1
        else:
            length, at = decode_length(data, at)
        headers.append((name, data[at : at + length] if length >= 0 else None))
        if length > 0:
            at += length
    return tuple(headers), at
