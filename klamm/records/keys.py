"""The keys of a batch and the positions of its records, which is all that log compaction needs.

The length of a record lets this module skip values and headers, so it costs half as much as decoding. A batch that
passes here can be compacted. Values and headers are not checked here, but only when they are read."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Final

from klamm.records.compression import decompress
from klamm.records.contents import MAX_DECOMPRESSED_BYTES
from klamm.records.errors import InvalidRecordError
from klamm.records.header import HEADER_SIZE_BYTES, BatchHeader, Buffer
from klamm.records.record import RECORD_SIZE_BYTES_MIN, Columns
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
"""After a search for a run that found none, the number of records skipped before the next search grows by this
factor."""
_AFTER_KEY_BYTES_MIN: Final = 2
"""The minimum size of the value's length and the number of headers."""
_NULL: Final = 1
"""The varint of the length -1, which the value of a tombstone has."""


@dataclass(slots=True)
class RecordKeys:
    """The records of one batch as columns, one element per record."""

    data: bytes
    """The decompressed records."""
    starts: list[int] = field(default_factory=list)
    """The position in `data` at which each record begins, followed by the end of the last record."""
    timestamp_deltas: list[int] = field(default_factory=list)
    offset_deltas: list[int] = field(default_factory=list)
    """The offset deltas. They ascend, and none is above the batch's last offset."""
    keys: list[bytes | None] = field(default_factory=list)
    key_ends: list[int] = field(default_factory=list)
    """The position in `data` of each value's length."""

    def is_tombstone(self, index: int) -> bool:
        """Returns whether the record's value is null."""
        return self.data[self.key_ends[index]] == _NULL


def read_keys(
    batch: Buffer, header: BatchHeader, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> RecordKeys:
    """Returns the keys of `batch`, which is exactly one whole batch with this `header`. The caller verifies the
    checksum.

    Raises a CorruptBatchError."""
    section = memoryview(batch)[HEADER_SIZE_BYTES:]
    data = decompress(header.compression, section, max_bytes=max_decompressed_bytes) if section else b""
    return parse_keys(header, data)


def parse_keys(header: BatchHeader, data: bytes) -> RecordKeys:
    """Returns the keys in `data`, the decompressed records of the batch with this `header`. Raises
    InvalidRecordError."""
    if not 0 <= header.record_count * RECORD_SIZE_BYTES_MIN <= len(data):
        raise InvalidRecordError(
            f"the batch at offset {header.base_offset} states {header.record_count} records in {len(data)} bytes"
        )
    records = RecordKeys(data)
    try:
        end = _fill(records, header.record_count)
    except IndexError:
        end = -1
    if end != len(data):
        raise InvalidRecordError(
            f"the {header.record_count} records at offset {header.base_offset} do not end where their {len(data)}"
            " bytes do"
        )
    records.starts.append(end)
    _check_offsets(header, records.offset_deltas)
    return records


def _check_offsets(header: BatchHeader, deltas: list[int]) -> None:
    if not deltas:
        return
    if deltas[0] < 0 or deltas[-1] > header.last_offset_delta or not all(map(operator.lt, deltas, deltas[1:])):
        raise InvalidRecordError(
            f"the offset deltas in the batch at offset {header.base_offset} do not grow from 0 to"
            f" {header.last_offset_delta}"
        )


def _fill(records: RecordKeys, count: int) -> int:
    """Fills the columns, and returns the position after the last record. Raises IndexError if the data end before
    that.
    """
    position, one_by_one = 0, RUN_RECORDS_MIN
    while remaining := count - len(records.keys):
        end = _take_run(records, position, remaining)
        if end == position:
            end = _walk(records, position, min(remaining, one_by_one))
            one_by_one *= _PATIENCE_FACTOR
        position = end
    return position


def _take_run(records: RecordKeys, position: int, count_max: int) -> int:
    """Appends a run of records of one size, like `parse_run`. Returns the position after them."""
    columns, data = Columns(), records.data
    end = parse_run(columns, data, position, count_max)
    if end == position:
        return position
    length = columns.key_lengths[0]
    records.starts += range(position, end, (end - position) // len(columns.offset_deltas))
    records.timestamp_deltas += columns.timestamp_deltas
    records.offset_deltas += columns.offset_deltas
    if length < 0:
        records.keys += [None] * len(columns.key_starts)
        records.key_ends += columns.key_starts
    else:
        records.keys += [data[start : start + length] for start in columns.key_starts]
        records.key_ends += [start + length for start in columns.key_starts]
    return end


def _walk(records: RecordKeys, position: int, count: int) -> int:
    """Appends the next `count` records, one by one.

    The code is flat for the same reason as in `parser.py`."""
    data = records.data
    add_start, add_timestamp_delta = records.starts.append, records.timestamp_deltas.append
    add_offset_delta, add_key, add_key_end = (
        records.offset_deltas.append,
        records.keys.append,
        records.key_ends.append,
    )
    at = position
    for _ in range(count):
        add_start(at)
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
        if length >= 0:
            key_end = at + length
            add_key(data[at:key_end])
            at = key_end
        else:
            add_key(None)
        if at + _AFTER_KEY_BYTES_MIN > end:
            raise InvalidRecordError(f"the record at byte {records.starts[-1]} is longer than it says")
        add_key_end(at)
        at = end
    return at
