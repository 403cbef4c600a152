"""Parses many records at once if they differ only in their contents (a run).

Records of one size are like the rows of a matrix, and a column is one slice with a step. So the fixed fields of all
rows are compared, and the varying ones decoded, without a loop over rows. Sensors, counters and benchmarks send values
of one size. Records that are not a run are left to `parser`."""

from __future__ import annotations

from typing import Final

from klamm.records.record import Columns
from klamm.records.varint import (
    NUMBER_1,
    NUMBER_2,
    VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX,
    decode_length,
    decode_varint,
)

RUN_RECORDS_MIN: Final = 16
"""The minimum length of a run. A search for a run costs about as much as parsing this many records."""

_ASCII: Final = bytes(range(128))
_FLIP_CONTINUATION: Final = bytes(byte ^ 0x80 for byte in range(256))


def parse_run(columns: Columns, data: bytes, position: int, count_max: int) -> int:
    """Appends the records that have the same layout as the record at `position`, up to `count_max`.

    Records with headers are not in a run. Returns the position after the appended records, or `position` if there are
    fewer than RUN_RECORDS_MIN. Raises the errors of `decode_varint` if the first record is broken."""
    if count_max < RUN_RECORDS_MIN:
        return position
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
        return position

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
        if count < RUN_RECORDS_MIN:
            return position
    for start, stop in ((timestamp_at, offset_at), (offset_at, key_length_at)):
        for at in range(start, stop):
            count = _count_varint_byte(data[at : at + count * stride : stride], is_last=at == stop - 1)
    if count < RUN_RECORDS_MIN:
        return position

    run_end = position + count * stride
    timestamps_at, offsets_at = range(timestamp_at, run_end, stride), range(offset_at, run_end, stride)
    columns.timestamp_deltas += _decode_column(data, timestamps_at, offset_at - timestamp_at, VARLONG_BYTES_MAX)
    columns.offset_deltas += _decode_column(data, offsets_at, key_length_at - offset_at, VARINT_BYTES_MAX)
    columns.key_starts += range(key_at, run_end, stride)
    columns.key_lengths += [key_length] * count
    columns.value_starts += range(value_at, run_end, stride)
    columns.value_lengths += [value_length] * count
    return run_end


def _count_equal(column: bytes) -> int:
    """Returns the number of equal bytes at the beginning."""
    first = column[:1]
    if column == first * len(column):
        return len(column)
    return len(column) - len(column.lstrip(first))


def _count_varint_byte(column: bytes, *, is_last: bool) -> int:
    """Returns the number of bytes at the beginning that end a varint. Without `is_last`, counts bytes that continue
    one."""
    if not is_last:
        column = column.translate(_FLIP_CONTINUATION)
    if column.isascii():
        return len(column)
    return len(column) - len(column.lstrip(_ASCII))


def _decode_column(data: bytes, positions: range, width: int, bytes_max: int) -> list[int]:
    """Returns the varints at `positions`, each of `width` bytes."""
    start, end, stride = positions.start, positions.stop, positions.step
    lows = data[start:end:stride]
    if width == 1:
        return [NUMBER_1[low] for low in lows]
    if width == 2:
        return [NUMBER_2[high][low] for low, high in zip(lows, data[start + 1 : end : stride], strict=True)]
    return [decode_varint(data, at, bytes_max)[0] for at in positions]
