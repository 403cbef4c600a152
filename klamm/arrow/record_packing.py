"""Converts rows of an Arrow batch to record batches of the log, column by column: no Python object per value.

Rows are sorted by topic and partition, cut into batches of a given size, and encoded all together. In pure Python,
numpy writes the bytes between keys and values, and Arrow joins the pieces of each record. The compiled core writes the
records from Arrow's memory, without the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from klamm.core import core
from klamm.records import PackedRecords

Int64s = np.ndarray[Any, np.dtype[np.int64]]

NO_PARTITION: Final = -1
"""Stands for a row without a partition. The producer chooses one partition for each batch of such rows."""
_RECORD_OVERHEAD_BYTES: Final = 16
"""The approximate size of a record besides its key, value and headers, in bytes."""
_NO_HEADERS: Final = b"\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows as columns of the same length. Binary arrays may have nulls."""

    topics: tuple[str, ...]
    topic_numbers: Int64s
    """The index of each row's topic in `topics`."""
    partitions: Int64s
    """The partition of each row, or NO_PARTITION."""
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    """The encoded headers of each row, with their count, or None if no row has headers."""
    timestamps_ms: Int64s


class PackedBatch(NamedTuple):
    """A batch of records, with its topic and its partition. The producer chooses the partition if it is None."""

    topic: str
    partition: int | None
    records: PackedRecords


def pack(rows: Rows, batch_bytes: int) -> Iterator[PackedBatch]:
    """Yields batches of all rows. Rows of one partition keep their order. No batch is larger than twice `batch_bytes`,
    except a batch of a single record."""
    if not len(rows.partitions):
        return iter(())
    return _pack_in_python(rows, batch_bytes) if core is None else _pack_in_core(rows, batch_bytes)


def _pack_in_core(rows: Rows, batch_bytes: int) -> Iterator[PackedBatch]:
    targets = _targets(rows)
    is_sorted = np.all(targets[1:] == targets[:-1])
    batches = core.pack_rows(
        None if rows.keys.null_count == len(rows.keys) else compiled_column(rows.keys),
        compiled_column(rows.values),
        None if rows.headers is None else compiled_column(rows.headers),
        targets,
        np.ascontiguousarray(rows.timestamps_ms),
        None if is_sorted else np.argsort(targets, kind="stable"),
        batch_bytes,
    )
    for first, count, data, base_timestamp_ms, max_timestamp_ms in batches:
        yield _packed_batch(rows, first, data, count, base_timestamp_ms, max_timestamp_ms)


def compiled_column(contents: pa.Array) -> Any:
    """Returns a binary array as the compiled core reads it. The array has at least one row."""
    return core.BinaryColumn(*contents.buffers(), contents.offset, len(contents))


def _packed_batch(
    rows: Rows, first: int, data: bytes, count: int, base_timestamp_ms: int, max_timestamp_ms: int
) -> PackedBatch:
    """Returns a batch of encoded records for the topic and the partition of the row `first`."""
    partition = int(rows.partitions[first])
    return PackedBatch(
        rows.topics[rows.topic_numbers[first]],
        None if partition == NO_PARTITION else partition,
        PackedRecords(
            data=data,
            record_count=count,
            base_timestamp_ms=base_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
        ),
    )


def _pack_in_python(rows: Rows, batch_bytes: int) -> Iterator[PackedBatch]:
    rows, batch_starts = _in_order(rows, batch_bytes)
    counts = np.diff(np.append(batch_starts, len(rows.partitions)))
    base_timestamps_ms = rows.timestamps_ms[batch_starts]
    records = _encode(
        rows,
        offset_deltas=np.arange(len(rows.partitions)) - np.repeat(batch_starts, counts),
        timestamp_deltas=rows.timestamps_ms - np.repeat(base_timestamps_ms, counts),
    )
    ends = np.frombuffer(records.buffers()[1], np.int32)
    data, bounds = records.buffers()[2], np.append(ends[batch_starts], ends[len(rows.partitions)])
    max_timestamps_ms = np.maximum.reduceat(rows.timestamps_ms, batch_starts)
    for number, first in enumerate(batch_starts.tolist()):
        begin, end = int(bounds[number]), int(bounds[number + 1])
        encoded = data.slice(begin, end - begin).to_pybytes()
        yield _packed_batch(
            rows, first, encoded, int(counts[number]), int(base_timestamps_ms[number]), int(max_timestamps_ms[number])
        )


def _targets(rows: Rows) -> Int64s:
    """Returns a number for the topic and partition of each row."""
    return (rows.topic_numbers << 32) + rows.partitions


def _in_order(rows: Rows, batch_bytes: int) -> tuple[Rows, Int64s]:
    """Returns the rows, sorted by topic and partition, and the indices at which a new batch begins."""
    targets = _targets(rows)
    if np.any(targets[1:] != targets[:-1]):
        order = np.argsort(targets, kind="stable")
        rows, targets = _taken(rows, order), targets[order]
    sizes = _sizes(rows)
    ends = np.cumsum(sizes)
    is_first = np.append(True, targets[1:] != targets[:-1])
    target_starts = np.flatnonzero(is_first)
    before = np.repeat((ends - sizes)[target_starts], np.diff(np.append(target_starts, len(targets))))
    # A record whose end does not fit into the batch begins the next batch.
    portions = (ends - before - 1) // batch_bytes
    is_alone = sizes > batch_bytes
    is_first[1:] |= (portions[1:] != portions[:-1]) | is_alone[1:] | is_alone[:-1]
    return rows, np.flatnonzero(is_first)


def _taken(rows: Rows, order: Int64s) -> Rows:
    indices = pa.array(order)
    return Rows(
        topics=rows.topics,
        topic_numbers=rows.topic_numbers[order],
        partitions=rows.partitions[order],
        keys=rows.keys.take(indices),
        values=rows.values.take(indices),
        headers=None if rows.headers is None else rows.headers.take(indices),
        timestamps_ms=rows.timestamps_ms[order],
    )


def _sizes(rows: Rows) -> Int64s:
    sizes = _byte_lengths(rows.keys) + _byte_lengths(rows.values) + _RECORD_OVERHEAD_BYTES
    return sizes if rows.headers is None else sizes + _byte_lengths(rows.headers)


def _byte_lengths(contents: pa.Array) -> Int64s:
    """Returns the length of each element in bytes, which is 0 for null."""
    return np.asarray(pc.binary_length(contents).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _encode(rows: Rows, offset_deltas: Int64s, timestamp_deltas: Int64s) -> pa.Array:
    """Encodes each record as an element of the array."""
    count = len(offset_deltas)
    key_lengths, value_lengths = (
        np.where(contents.is_null().to_numpy(zero_copy_only=False), -1, _byte_lengths(contents))
        for contents in (rows.keys, rows.values)
    )
    fields = [_Varints(numbers) for numbers in (timestamp_deltas, offset_deltas, key_lengths, value_lengths)]
    lengths = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    lengths += len(_NO_HEADERS) if rows.headers is None else _byte_lengths(rows.headers)
    attributes = _Varints(np.zeros(count, np.int64))
    for field in (attributes, *fields):
        lengths += field.widths
    before_key = _joined([_Varints(lengths), attributes, *fields[:3]])
    before_value = _joined(fields[3:])
    pieces = [before_key, before_value, rows.values, pa.scalar(_NO_HEADERS) if rows.headers is None else rows.headers]
    if rows.keys.null_count < count:
        pieces.insert(1, rows.keys)
    return pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement="")


class _Varints:
    """Numbers of up to 64 bits in the encoding of the record format: zigzag, base 128."""

    def __init__(self, numbers: Int64s) -> None:
        self._raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
        self.widths: Int64s = np.ones(len(numbers), np.int64)
        rest = self._raw >> np.uint64(7)
        while rest.any():
            self.widths += rest != 0
            rest >>= np.uint64(7)

    def write(self, data: np.ndarray[Any, np.dtype[np.uint8]], at: Int64s) -> None:
        """Writes each number into `data` at its position in `at`."""
        for number in range(int(self.widths.max())):
            rows = slice(None) if number == 0 else np.flatnonzero(self.widths > number)
            byte = (self._raw[rows] >> np.uint64(7 * number)).astype(np.uint8) & np.uint8(0x7F)
            byte |= (self.widths[rows] > number + 1).astype(np.uint8) << np.uint8(7)
            data[at[rows] + number] = byte


def _joined(fields: list[_Varints]) -> pa.Array:
    """Returns the bytes of each row, with all of these fields one after the other."""
    ends = np.cumsum(sum((field.widths for field in fields), np.zeros_like(fields[0].widths)))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    data = np.empty(int(ends[-1]), np.uint8)
    at = offsets[:-1].astype(np.int64)
    for field in fields:
        field.write(data, at)
        at += field.widths
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
