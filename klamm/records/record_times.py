"""Finds the largest timestamp of a batch by its records, and the first record from a time on.

Both need two numbers of each record: its length, which leads to the next record, and its timestamp delta. So keys,
values and headers are skipped. Records of one size (a run) are like the rows of a matrix, and a column of their bytes
is one slice with a step, so most of the work for them is done without a loop over records. The count of the records is
checked on the way: they must end where their bytes do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from klamm.records.errors import InvalidRecordError
from klamm.records.header import BatchHeader, Buffer
from klamm.records.record import RECORD_SIZE_BYTES_MIN
from klamm.records.varint import (
    LENGTH_1,
    LENGTH_2,
    NUMBER_1,
    NUMBER_2,
    VARLONG_BYTES_MAX,
    decode_length,
    decode_varint,
)

RUN_RECORDS_MIN: Final = 16
"""The minimum length of a run. The search for one costs about as much as reading this many records."""
_PATIENCE_FACTOR: Final = 4
"""After a search that found no run, the number of records skipped before the next search grows by this factor."""
_CHUNK_RECORDS_MAX: Final = 1_024
_SHORT_OFFSET_DELTAS: Final = 64
"""The number of records whose offset deltas have one byte. Those of the next 8,128 have two."""
_ASCII: Final = bytes(range(128))
_FLIP_CONTINUATION: Final = bytes(byte ^ 0x80 for byte in range(256))
_INT64_MAX: Final = 2**63 - 1


def largest_timestamp_ms(header: BatchHeader, records: Buffer) -> int:
    """Returns the largest timestamp of the decompressed `records` of a batch that has at least one record.

    Raises InvalidRecordError if the header's number of records do not fill `records`, or if a timestamp has more than
    64 bits."""
    count = header.record_count
    if count == 1:
        largest_delta = _delta_of_single(records)
    else:
        records = bytes(records)
        largest_delta = _largest_of_equal_values(records, count)
    if largest_delta is None:
        largest_delta = max([chunk.largest_delta for chunk in _chunks(header, bytes(records))])
    timestamp_ms = header.base_timestamp_ms + largest_delta
    if not -_INT64_MAX <= timestamp_ms <= _INT64_MAX:
        raise InvalidRecordError(
            f"timestamp {timestamp_ms} of the batch at offset {header.base_offset} has more than 64 bits"
        )
    return timestamp_ms


def _delta_of_single(record: Buffer) -> int | None:
    """Returns the timestamp delta of the only record if its length has at most two bytes, and its delta one byte, which
    is common. Otherwise returns None."""
    size_bytes = len(record)
    if size_bytes < RECORD_SIZE_BYTES_MIN:
        return None
    low = record[0]
    if low < 128:
        delta_at = 2
        end = 1 + LENGTH_1[low]
    elif (high := record[1]) < 128:
        delta_at = 3
        end = 2 + LENGTH_2[high][low]
    else:
        return None
    delta = record[delta_at]
    return NUMBER_1[delta] if end == size_bytes and delta < 128 else None


def _largest_of_equal_values(data: bytes, count: int) -> int | None:
    """Returns the largest timestamp delta if all timestamp deltas have one byte, and if only the offset deltas make the
    records differ in size. This is common. Otherwise returns None."""
    if count <= _SHORT_OFFSET_DELTAS:
        return _largest_of_one_size(data, 0, len(data), count)
    wider = count - _SHORT_OFFSET_DELTAS
    middle = (len(data) - wider) // count * _SHORT_OFFSET_DELTAS
    narrow_largest = _largest_of_one_size(data, 0, middle, _SHORT_OFFSET_DELTAS)
    if narrow_largest is None:
        return None
    wide_largest = _largest_of_one_size(data, middle, len(data), wider)
    return None if wide_largest is None else max(narrow_largest, wide_largest)


def _largest_of_one_size(data: bytes, start: int, end: int, count: int) -> int | None:
    """Returns the largest timestamp delta if the records between two positions have one length and timestamp deltas of
    one byte. Otherwise returns None."""
    stride = (end - start) // count
    if stride < RECORD_SIZE_BYTES_MIN or start + stride * count != end:
        return None
    low = data[start]
    if low < 128:
        deltas_at = start + 2
        if LENGTH_1[low] + 1 != stride:
            return None
    else:
        deltas_at = start + 3
        high = data[start + 1]
        if high >= 128 or LENGTH_2[high][low] + 2 != stride:
            return None
        if data[start + 1 : end : stride] != data[start + 1 : start + 2] * count:
            return None
    if data[start:end:stride] != data[start : start + 1] * count:
        return None
    deltas = data[deltas_at:end:stride]
    if not deltas.isascii():
        return None
    first = deltas[0]
    return NUMBER_1[first] if deltas.count(first) == count else _largest_1(deltas)


def check_count(header: BatchHeader, records: Buffer) -> None:
    """Raises InvalidRecordError if the header's number of records do not fill `records`."""
    for _ in _chunks(header, bytes(records)):
        pass


def first_record_from(
    header: BatchHeader, records: bytes, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """Returns timestamp and offset of the first record at or after `start_offset` whose timestamp is `timestamp_ms` or
    later, or None. `records` are the decompressed records of a batch whose timestamps are its records' own.

    Raises InvalidRecordError like `largest_timestamp_ms`."""
    delta_min = timestamp_ms - header.base_timestamp_ms
    offset_delta_min = start_offset - header.base_offset
    for chunk in _chunks(header, records):
        if chunk.largest_delta < delta_min:
            continue
        for delta, offset_delta in _deltas(records, chunk):
            if delta >= delta_min and offset_delta >= offset_delta_min:
                return header.base_timestamp_ms + delta, header.base_offset + offset_delta
    return None


class _Chunk(NamedTuple):
    """Some successive records of a batch."""

    position: int
    """The position of the first record."""
    end: int
    """The position after the last record."""
    largest_delta: int
    """The largest timestamp delta of the records."""
    record_count: int


def _chunks(header: BatchHeader, records: bytes) -> Iterator[_Chunk]:
    """Yields all records in chunks. Raises InvalidRecordError after the last chunk if the records do not end where
    their bytes do."""
    left, at, patience = header.record_count, 0, RUN_RECORDS_MIN
    try:
        if left * RECORD_SIZE_BYTES_MIN > len(records):
            raise IndexError
        while left:
            chunk = find_run(records, at, left) if left >= RUN_RECORDS_MIN else None
            if chunk is None:
                count = min(left, patience)
                chunk = _Chunk(at, *_each(records, at, count), count)
                patience = min(patience * _PATIENCE_FACTOR, _CHUNK_RECORDS_MAX)
            yield chunk
            at, left = chunk.end, left - chunk.record_count
    except IndexError:
        at = -1
    if at != len(records):
        raise _wrong_end(header, records)


def _wrong_end(header: BatchHeader, records: Buffer) -> InvalidRecordError:
    return InvalidRecordError(
        f"the {header.record_count} records at offset {header.base_offset} do not end where their {len(records)}"
        " bytes do"
    )


def _deltas(data: bytes, chunk: _Chunk) -> Iterator[tuple[int, int]]:
    """Yields the timestamp delta and the offset delta of each record of a chunk."""
    at = chunk.position
    for _ in range(chunk.record_count):
        length, body_at = decode_length(data, at)
        delta, offset_at = decode_varint(data, body_at + 1, VARLONG_BYTES_MAX)
        yield delta, decode_varint(data, offset_at)[0]
        at = body_at + length


def find_run(data: bytes, position: int, count_max: int) -> _Chunk | None:
    """Returns the records from `position` on that have one length and one width of timestamp deltas. Returns None if
    they are too few for a run, or if the first delta has more than two bytes."""
    length, at = decode_length(data, position)
    if length < RECORD_SIZE_BYTES_MIN - 1:
        return None
    stride = at - position + length
    count = min(count_max, (len(data) - position) // stride)
    for start in range(position, at):
        if count >= RUN_RECORDS_MIN:
            count = _count_equal(data[start : start + count * stride : stride])
    delta_bytes = 1 if data[at + 1] < 128 else 2
    last = at + delta_bytes
    if count >= RUN_RECORDS_MIN and delta_bytes == 2:
        count = _count_below_128(data[at + 1 : at + 1 + count * stride : stride].translate(_FLIP_CONTINUATION))
    if count >= RUN_RECORDS_MIN:
        count = _count_below_128(data[last : last + count * stride : stride])
    if count < RUN_RECORDS_MIN:
        return None
    end = position + count * stride
    lows = data[at + 1 : end : stride]
    largest = _largest_1(lows) if delta_bytes == 1 else _largest_2(lows, data[last:end:stride])
    return _Chunk(position, end, largest, count)


def _count_equal(column: bytes) -> int:
    """Returns the number of equal bytes at the beginning."""
    first = column[:1]
    return len(column) if column == first * len(column) else len(column) - len(column.lstrip(first))


def _count_below_128(column: bytes) -> int:
    """Returns the number of bytes below 128 at the beginning."""
    return len(column) if column.isascii() else len(column) - len(column.lstrip(_ASCII))


def _largest_1(lows: bytes) -> int:
    """Returns the largest of some numbers of one byte."""
    return max([NUMBER_1[low] for low in set(lows)])


def _largest_2(lows: bytes, highs: bytes) -> int:
    """Returns the largest of some numbers of two bytes."""
    pairs = bytearray(2 * len(lows))
    pairs[0::2], pairs[1::2] = lows, highs
    numbers: tuple[int, ...] = struct.unpack(f"<{len(lows)}H", pairs)
    largest = max(numbers)
    if largest & 1:
        # A negative number, so the largest one needs all of them.
        return max([NUMBER_2[number >> 8][number & 0xFF] for number in set(numbers)])
    return NUMBER_2[largest >> 8][largest & 0xFF]


def _each(data: bytes, position: int, count: int) -> tuple[int, int]:
    """Returns the position after the next `count` records, at least one, and their largest timestamp delta.

    Raises IndexError if the data end early."""
    at, largest, low_before = position, -_INT64_MAX, -1
    for _ in range(count):
        low = data[at]
        if low < 128:
            delta_at = at + 2
            at += 1 + LENGTH_1[low]
        elif (high := data[at + 1]) < 128:
            delta_at = at + 3
            at += 2 + LENGTH_2[high][low]
        else:
            length, body_at = decode_length(data, at)
            delta_at = body_at + 1
            at = body_at + length
        low = data[delta_at]
        if low == low_before:
            continue
        if low < 128:
            low_before = low
            delta = NUMBER_1[low]
        elif (high := data[delta_at + 1]) < 128:
            delta = NUMBER_2[high][low]
        else:
            delta, _ = decode_varint(data, delta_at, VARLONG_BYTES_MAX)
        if delta > largest:
            largest = delta
    return at, largest
