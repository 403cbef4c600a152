"""Reads the records of many batches as numpy columns: the positions of keys and values, the offsets and the timestamps.
One batch alone is too small (16 KiB by default) to be worth a column.

One loop in Python goes from record to record by their lengths alone. Every other field is then read for all records
together. For any bytes, the result is columns that lie within them, or an InvalidRecordError. It refuses the batches
that `decode_section` refuses.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from klamm.records import BatchHeader, Buffer, Headers, InvalidRecordError, RecordSection, parse_headers
from klamm.records.varint import LENGTH_1, LENGTH_2, VARINT_BYTES_MAX, VARLONG_BYTES_MAX, decode_length

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_INT64_MAX: Final = 2**63 - 1
_BASE_OFFSET_MAX: Final = _INT64_MAX - (2**31 - 1)
_ONE: Final = np.uint64(1)
_SEVEN_BITS: Final = np.uint64(0x7F)
_LAST_BYTE_MAX: Final = {VARINT_BYTES_MAX: 0x0F, VARLONG_BYTES_MAX: 0x01}
"""The largest last byte of the longest numbers, by their number of bytes. 32 and 64 bits are no multiple of seven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The fields of many records. Every array has one element per record. Positions are into `data` and never
    decrease."""

    data: Buffer
    offsets: Int64s
    timestamps_ms: Int64s
    timestamp_types: Int64s
    leader_epochs: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    """The length of each key in bytes, or -1 for null."""
    value_starts: Int64s
    value_lengths: Int64s
    """The length of each value in bytes, or -1 for null."""
    headers: Mapping[int, Headers]
    """The headers by the index of their record. A record without headers is left out."""


def columns_of(sections: Sequence[RecordSection]) -> RecordColumns:
    """Returns the columns of the records in `sections`, of which there is at least one. Raises InvalidRecordError."""
    data, bounds = _joined(sections)
    starts = array("q")
    try:
        for section, (start, end) in zip(sections, bounds, strict=True):
            _find_records(data, start, end, section.header.record_count, starts)
        return _read_fields(data, sections, np.frombuffer(starts, np.int64))
    except IndexError:
        raise InvalidRecordError(f"malformed batch: the last record does not end within {len(data)} bytes") from None


def _joined(sections: Sequence[RecordSection]) -> tuple[Buffer, list[tuple[int, int]]]:
    """Returns one buffer with all sections, and the start and end of each section in it."""
    data = sections[0].data
    if all(section.data is data for section in sections):
        return data, [(section.start, section.end) for section in sections]
    bounds, at = [], 0
    for section in sections:
        bounds.append((at, at + section.end - section.start))
        at = bounds[-1][1]
    return b"".join(memoryview(section.data)[section.start : section.end] for section in sections), bounds


def _find_records(data: Buffer, start: int, end: int, count: int, starts: array[int]) -> None:
    """Appends to `starts` the position of each of the `count` records that lie from `start` to `end`."""
    add, at = starts.append, start
    for _ in range(count):
        add(at)
        low = data[at]
        if low < 128:
            at += 1 + LENGTH_1[low]
        elif (high := data[at + 1]) < 128:
            at += 2 + LENGTH_2[high][low]
        else:
            length, at = decode_length(data, at)
            at += length
    if at != end:
        raise InvalidRecordError(f"malformed batch: {count} records end at byte {at - start} of {end - start}")


def _read_fields(data: Buffer, sections: Sequence[RecordSection], starts: Int64s) -> RecordColumns:
    view = np.frombuffer(data, np.uint8)
    lengths, at = _varints(view, starts, VARINT_BYTES_MAX)
    ends = at + lengths
    timestamp_deltas, at = _varints(view, at + 1, VARLONG_BYTES_MAX)  # behind the attributes, which are unused
    offset_deltas, at = _varints(view, at, VARINT_BYTES_MAX)
    key_lengths, key_starts = _lengths(view, at)
    value_lengths, value_starts = _lengths(view, key_starts + np.maximum(key_lengths, 0))
    headers_at = value_starts + np.maximum(value_lengths, 0)
    has_headers = view[headers_at] != 0
    if not np.all(np.where(has_headers, headers_at + 1 < ends, headers_at + 1 == ends)):
        raise InvalidRecordError("malformed record: the fields do not end where the record's length says")
    return RecordColumns(
        data=data,
        offsets=_base_offsets(sections) + offset_deltas,
        timestamps_ms=_timestamps_ms(sections, timestamp_deltas),
        timestamp_types=_per_record(sections, lambda header: header.timestamp_type),
        leader_epochs=_per_record(sections, lambda header: header.partition_leader_epoch),
        key_starts=key_starts,
        key_lengths=key_lengths,
        value_starts=value_starts,
        value_lengths=value_lengths,
        headers=_headers(data, np.flatnonzero(has_headers), headers_at, ends),
    )


def _headers(data: Buffer, rows: Int64s, starts: Int64s, ends: Int64s) -> dict[int, Headers]:
    headers = {}
    for row, start, end in zip(rows.tolist(), starts[rows].tolist(), ends[rows].tolist(), strict=True):
        headers[row], length = parse_headers(bytes(memoryview(data)[start:end]), 0)
        if length != end - start:
            raise InvalidRecordError(f"malformed record: the headers do not end after {end - start} bytes")
    return headers


def _timestamps_ms(sections: Sequence[RecordSection], deltas: Int64s) -> Int64s:
    """Returns the timestamps, which the producer has set, or the log when it appended the batch."""
    base = _per_record(sections, lambda header: header.base_timestamp_ms)
    is_logged = _per_record(sections, lambda header: header.timestamp_type) != 0
    given = base + deltas
    # A sum that does not fit has another sign than both of its parts. The least number is refused, too.
    if np.any(~is_logged & (((base ^ given) & (deltas ^ given) < 0) | (given < -_INT64_MAX))):
        raise InvalidRecordError("a timestamp does not fit 64 bits")
    if not is_logged.any():
        return given
    return np.where(is_logged, _per_record(sections, lambda header: header.max_timestamp_ms), given)


def _base_offsets(sections: Sequence[RecordSection]) -> Int64s:
    base_offsets = _per_record(sections, lambda header: header.base_offset)
    if np.any((base_offsets < 0) | (base_offsets > _BASE_OFFSET_MAX)):
        raise InvalidRecordError("an offset in a batch's header is negative, or too large for the offsets after it")
    return base_offsets


def _per_record(sections: Sequence[RecordSection], field: Callable[[BatchHeader], int]) -> Int64s:
    """Returns a field of the batches' headers, for each of their records."""
    values = np.array([field(section.header) for section in sections], np.int64)
    return np.repeat(values, [section.header.record_count for section in sections])


def _lengths(view: Bytes, at: Int64s) -> tuple[Int64s, Int64s]:
    """Returns the lengths of keys or values at these positions, and the positions where their bytes begin."""
    lengths, starts = _varints(view, at, VARINT_BYTES_MAX)
    if lengths.size and lengths.min() < -1:
        raise InvalidRecordError(f"malformed record: a key or value has the length {lengths.min()}")
    return lengths, starts


def _varints(view: Bytes, at: Int64s, bytes_max: int) -> tuple[Int64s, Int64s]:
    """Returns the numbers at these positions, and the positions after them. Raises IndexError if the data ends
    before."""
    raw = view[at].astype(np.uint64)
    following = at + 1
    rows = np.flatnonzero(raw >= 128)
    raw[rows] &= _SEVEN_BITS
    for width in range(1, bytes_max + 1):
        if not rows.size:
            return (raw >> _ONE).view(np.int64) ^ -(raw & _ONE).view(np.int64), following
        if width < bytes_max:
            byte = view[following[rows]]
            following[rows] += 1
            raw[rows] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * width)
            if width == bytes_max - 1 and byte.max() > _LAST_BYTE_MAX[bytes_max]:
                break
            rows = rows[byte >= 128]
    raise InvalidRecordError(f"malformed record: a number has more than {bytes_max} bytes or too many bits")
