"""From the decompressed records of a batch to columns: where each key and value lies, and the deltas.

The one loop over records in Python that every consumer pays for, so it is long, flat and calls nothing for
numbers of one or two bytes. Lengths are not checked one by one. Positions only ever grow: a record whose
parts do not end where its length says is found out at its end, data that ends early by an IndexError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klamm.records.errors import InvalidRecordError
from klamm.records.record import Headers
from klamm.records.varint import (
    LENGTH_1,
    LENGTH_2,
    NUMBER_1,
    NUMBER_2,
    VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    decode_length,
    decode_varint,
)


@dataclass(slots=True)
class Columns:
    """One element per record; a length of -1 is null. `headers` has only the records that have some."""

    offset_deltas: list[int] = field(default_factory=list)
    timestamp_deltas: list[int] = field(default_factory=list)
    key_starts: list[int] = field(default_factory=list)
    key_lengths: list[int] = field(default_factory=list)
    value_starts: list[int] = field(default_factory=list)
    value_lengths: list[int] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)


def parse_records(data: bytes, count: int) -> Columns:
    """The `count` records that `data` consists of. Raises InvalidRecordError."""
    columns = Columns()
    try:
        position = _parse_regular(columns, data, count)
        position = _parse_each(columns, data, position, count - len(columns.offset_deltas))
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
        at += 1  # the attributes, unused

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
            headers, at = _parse_headers(data, at)
            if headers:
                columns.headers[len(columns.offset_deltas) - 1] = headers
        else:
            at += 1
        if at != end:
            index = len(columns.offset_deltas) - 1
            raise InvalidRecordError(f"record {index} ends at byte {at} of the records, by its length at {end}")
    return at


def _parse_headers(data: bytes, position: int) -> tuple[Headers, int]:
    """The headers whose count stands at `position`; as in Kafka, a name that is not UTF-8 is mended."""
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


_RUN_RECORDS_MIN: Final = 16
_SHORT_RUNS_MAX: Final = 3


def _parse_regular(columns: Columns, data: bytes, count: int) -> int:
    """Appends runs of records of one layout for as long as there are; returns the position after them."""
    position = short_runs = 0
    while len(columns.offset_deltas) < count and short_runs < _SHORT_RUNS_MAX:
        remaining = count - len(columns.offset_deltas)
        taken, position = _parse_run(columns, data, position, remaining)
        if taken < _RUN_RECORDS_MIN:
            short_runs += 1
        if not taken:
            break
    return position


def _parse_run(columns: Columns, data: bytes, position: int, count_max: int) -> tuple[int, int]:
    """Appends as many records as have every byte in the place the record at `position` has it.

    Records of one size lie in `data` like the rows of a matrix. A column of it is one slice with a step, so
    that the fixed fields of all rows are compared, and the varying ones decoded, without a loop over rows.
    Returns how many it took and the position after them; none when there are fewer than a run is worth.
    """
    length, attributes_at = decode_varint(data, position)
    timestamp_at = attributes_at + 1
    _, offset_at = decode_varint(data, timestamp_at, VARLONG_BYTES_MAX)
    _, key_length_at = decode_varint(data, offset_at)
    key_length, key_at = decode_length(data, key_length_at)
    value_length_at = key_at + max(0, key_length)
    value_length, value_at = decode_length(data, value_length_at)
    headers_at = value_at + max(0, value_length)
    end = attributes_at + length
    if headers_at + 1 != end or data[headers_at]:
        return 0, position

    stride = end - position
    count = min(count_max, (len(data) - position) // stride)
    fixed = (
        *range(position, timestamp_at),
        *range(key_length_at, key_at),
        *range(value_length_at, value_at),
        headers_at,
    )
    for at in fixed:
        count = _count_equal(data[at : at + count * stride : stride])
        if count < _RUN_RECORDS_MIN:
            return 0, position
    for start, stop in ((timestamp_at, offset_at), (offset_at, key_length_at)):
        for at in range(start, stop):
            count = _count_varint_byte(data[at : at + count * stride : stride], is_last=at == stop - 1)
    if count < _RUN_RECORDS_MIN:
        return 0, position

    run_end = position + count * stride
    columns.timestamp_deltas += _decode_column(data, timestamp_at, offset_at, run_end, stride)
    columns.offset_deltas += _decode_column(data, offset_at, key_length_at, run_end, stride)
    columns.key_starts += range(key_at, run_end, stride)
    columns.key_lengths += [key_length] * count
    columns.value_starts += range(value_at, run_end, stride)
    columns.value_lengths += [value_length] * count
    return count, run_end


def _count_equal(column: bytes) -> int:
    """How many bytes at the beginning are the same."""
    first = column[:1]
    if column == first * len(column):
        return len(column)
    return len(column) - len(column.lstrip(first))


def _count_varint_byte(column: bytes, *, is_last: bool) -> int:
    """How many bytes at the beginning do, or (not the last of a number) do not, end a varint."""
    if not is_last:
        column = column.translate(_FLIP_CONTINUATION)
    if column.isascii():
        return len(column)
    return len(column) - len(column.lstrip(_ASCII))


def _decode_column(data: bytes, start: int, stop: int, end: int, stride: int) -> list[int]:
    """The varints at `start`, `start + stride` … before `end`, each `stop - start` bytes wide."""
    lows = data[start:end:stride]
    if stop - start == 1:
        return [NUMBER_1[low] for low in lows]
    if stop - start == 2:
        return [NUMBER_2[high][low] for low, high in zip(lows, data[start + 1 : end : stride], strict=True)]
    bytes_max = VARINT_BYTES_MAX if stop - start <= VARINT_BYTES_MAX else VARLONG_BYTES_MAX
    return [decode_varint(data, at, bytes_max)[0] for at in range(start, end, stride)]


_ASCII: Final = bytes(range(128))
_FLIP_CONTINUATION: Final = bytes(byte ^ 0x80 for byte in range(256))
