"""Converts record batches of the log to Arrow record batches for Spark, column by column: no Python object per value.

A fetched batch is small (16 KiB by default), but Spark wants thousands of rows. So all batches of a fetch are read
together (`record_columns`). The rows of several fetches are collected until there are `ROWS_MAX` rows or `BYTES_MAX`
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from klamm.consumer.errors import BatchTooLargeError
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.isolation import VisibleBatches
from klamm.model import TopicPartition
from klamm.records import (
    MAX_DECOMPRESSED_BYTES,
    DecompressedTooLargeError,
    InvalidRecordError,
    RecordSection,
    iter_headers,
    parse_headers,
    read_section,
)
from pyspark_klamm.cluster_access import FetchedBatches
from pyspark_klamm.offsets import OffsetRange
from pyspark_klamm.record_columns import Int64s, RecordColumns, columns_of
from pyspark_klamm.schema import arrow_schema

ROWS_MAX: Final = 20_000
BYTES_MAX: Final = 4 * 1024 * 1024
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""The latest time that a timestamp of Spark can hold, which is a 64-bit number of microseconds. The first time is the
negative of it."""

InvalidTimestampError = EXCEPTIONS[ErrorCode.INVALID_TIMESTAMP]


class ArrowBuilder:
    """Collects rows of the wanted columns and gives out Arrow record batches."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._makers = [_MAKERS[name] for name in columns]
        self._chunks: list[list[pa.Array]] = []
        self._rows = 0
        self._bytes = 0

    def rows(
        self,
        wanted: OffsetRange,
        fetches: Iterable[FetchedBatches],
        *,
        check_crcs: bool,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """Yields Arrow record batches of the range `wanted`. The rows that fill no batch stay until `finish`. Raises a
        CorruptBatchError, BatchTooLargeError or InvalidTimestampError."""
        for fetched in fetches:
            for sections in _portions(_visible_sections(wanted, fetched, check_crcs, max_decompressed_bytes)):
                if self._rows + sum(section.header.record_count for section in sections) > ROWS_MAX:
                    yield from self.finish()
                self._add(_Rows(wanted, columns_of(sections)))
                self._bytes += sum(section.end - section.start for section in sections)
                if self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX:
                    yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows that are left as one batch, if there are any."""
        if self._rows:
            columns = [
                chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
                for chunks in zip(*self._chunks, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._chunks, self._rows, self._bytes = [], 0, 0

    def _add(self, rows: _Rows) -> None:
        if rows.count:
            self._chunks.append([make(rows) for make in self._makers])
            self._rows += rows.count


def _visible_sections(
    wanted: OffsetRange, fetched: FetchedBatches, check_crcs: bool, max_bytes: int
) -> Iterator[RecordSection]:
    """Yields the records of the batches that a reader may see and that overlap the range."""
    visible = VisibleBatches(fetched.aborted_transactions)
    for position, header in iter_headers(fetched.records):
        is_hidden = visible.hides(header, fetched.records, position)
        if not is_hidden and wanted.start_offset <= header.last_offset and header.base_offset < wanted.end_offset:
            try:
                section = read_section(
                    fetched.records, position, check_crc=check_crcs, max_decompressed_bytes=max_bytes
                )
            except DecompressedTooLargeError:
                raise BatchTooLargeError(wanted.tp, header.base_offset, header.next_offset, max_bytes) from None
            yield section


def _portions(sections: Iterable[RecordSection]) -> Iterator[list[RecordSection]]:
    """Yields the sections in portions of one Arrow record batch. A portion has at least one section."""
    portion: list[RecordSection] = []
    rows = size_bytes = 0
    for section in sections:
        rows += section.header.record_count
        size_bytes += section.end - section.start
        if portion and (rows > ROWS_MAX or size_bytes > BYTES_MAX):
            yield portion
            portion, rows, size_bytes = [], section.header.record_count, section.end - section.start
        portion.append(section)
    if portion:
        yield portion


class _Rows:
    """The records in the wanted range, which are `columns[low:high]`."""

    def __init__(self, wanted: OffsetRange, columns: RecordColumns) -> None:
        self.tp: TopicPartition = wanted.tp
        self.columns = columns
        low, high = np.searchsorted(columns.offsets, (wanted.start_offset, wanted.end_offset))
        self.span = slice(int(low), int(high))
        self.count = max(0, int(high - low))

    def binary(self, starts: Int64s, lengths: Int64s) -> pa.Array:
        """Returns the keys or values: every second element of a binary array over the batches' own bytes."""
        start, length = starts[self.span], lengths[self.span]
        bounds = np.empty(2 * self.count, np.int32)
        bounds[0::2] = start
        bounds[1::2] = start + np.maximum(length, 0)
        spans = pa.Array.from_buffers(
            pa.binary(), 2 * self.count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.columns.data)]
        )
        nulls = length < 0
        # A null index gives a null element.
        indices = pa.array(np.arange(0, 2 * self.count, 2, dtype=np.int64), mask=nulls if nulls.any() else None)
        return spans.take(indices)

    def headers(self) -> pa.Array:
        """Returns the headers of the records, with null for a record without headers, as in Spark's Kafka source."""
        data, columns = memoryview(self.columns.data), self.columns
        lists = [
            _headers(bytes(data[start:end])) if has_headers else None
            for start, end, has_headers in zip(
                columns.headers_at[self.span].tolist(),
                columns.ends[self.span].tolist(),
                columns.has_headers[self.span].tolist(),
                strict=True,
            )
        ]
        return pa.array(lists, type=arrow_schema(("headers",)).field(0).type)


def _headers(data: bytes) -> list[dict[str, Any]]:
    """Returns the headers of one record. Raises InvalidRecordError if `data` does not end with them."""
    try:
        headers, end = parse_headers(data, 0)
    except IndexError:
        end = -1
    if end != len(data):
        raise InvalidRecordError(f"malformed record: the headers do not end after {len(data)} bytes")
    return [{"key": key, "value": value} for key, value in headers]


def _timestamp(rows: _Rows) -> pa.Array:
    """Returns the timestamps in microseconds. Raises InvalidTimestampError if one does not fit, as Spark's Kafka source
    does."""
    timestamps_ms = rows.columns.timestamps_ms[rows.span]
    odd = np.flatnonzero((timestamps_ms > TIMESTAMP_MS_MAX) | (timestamps_ms < -TIMESTAMP_MS_MAX))
    if odd.size:
        first = int(odd[0])
        raise InvalidTimestampError(
            f"{rows.tp} at offset {rows.columns.offsets[rows.span][first]} has the timestamp {timestamps_ms[first]} ms;"
            f" Spark's timestamps hold at most {TIMESTAMP_MS_MAX} ms: read only other columns, such as"
            ' .schema("value BINARY, offset LONG")'
        )
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows.count, [None, pa.py_buffer(timestamps_ms * 1000)])


_MAKERS: Final[dict[str, Callable[[_Rows], pa.Array]]] = {
    "key": lambda rows: rows.binary(rows.columns.key_starts, rows.columns.key_lengths),
    "value": lambda rows: rows.binary(rows.columns.value_starts, rows.columns.value_lengths),
    "topic": lambda rows: pa.repeat(pa.scalar(rows.tp.topic), rows.count),
    "partition": lambda rows: pa.repeat(pa.scalar(rows.tp.partition, pa.int32()), rows.count),
    "offset": lambda rows: pa.array(rows.columns.offsets[rows.span]),
    "timestamp": _timestamp,
    "timestampType": lambda rows: pa.array(rows.columns.timestamp_types[rows.span].astype(np.int32)),
    "headers": _Rows.headers,
}
