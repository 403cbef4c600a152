"""Converts record batches of the log to Arrow record batches for Spark, by `klamm.arrow`. Only Spark's schema and its
bounds are here.

The rows of several fetches are collected until there are `ROWS_MAX` rows or `BYTES_MAX` bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from klamm.arrow.row_builder import add_all, row_builder
from klamm.consumer.errors import BatchTooLargeError
from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.isolation import VisibleBatches
from klamm.model import TopicPartition
from klamm.records import (
    MAX_DECOMPRESSED_BYTES,
    DecompressedTooLargeError,
    RecordSection,
    iter_headers,
    read_section,
)
from pyspark_klamm.cluster_access import FetchedBatches
from pyspark_klamm.offsets import OffsetRange
from pyspark_klamm.schema import arrow_schema

ROWS_MAX: Final = 20_000
BYTES_MAX: Final = 4 * 1024 * 1024
TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""The latest time that a timestamp of Spark can hold, which is a 64-bit number of microseconds. The first time is the
negative of it."""

InvalidTimestampError = EXCEPTIONS[ErrorCode.INVALID_TIMESTAMP]


_OWN: Final = {"timestampType": "timestamp_type"}
"""The columns whose names differ from those of `klamm.arrow`."""


class ArrowBuilder:
    """Collects rows of the wanted columns and gives out Arrow record batches."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._names = {name: _OWN.get(name, name) for name in columns}
        of_records = {*self._names.values(), "offset"} - {"topic", "partition"}
        self._builder = row_builder(of_records)
        self._runs: list[tuple[TopicPartition, int]] = []
        """The partitions of the rows, with the number of rows."""

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
        builder = self._builder
        for fetched in fetches:
            for sections in _portions(_visible_sections(wanted, fetched, check_crcs, max_decompressed_bytes)):
                if builder.row_count + sum(section.header.record_count for section in sections) > ROWS_MAX:
                    yield from self.finish()
                before = builder.row_count
                add_all(builder, sections, wanted.start_offset, wanted.end_offset)
                if builder.row_count > before:
                    self._runs.append((wanted.tp, builder.row_count - before))
                if builder.row_count >= ROWS_MAX or builder.size_bytes >= BYTES_MAX:
                    yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows that are left as one batch, if there are any."""
        if self._builder.row_count:
            runs, self._runs = self._runs, []
            arrays = self._builder.take()
            columns = [_column(name, arrays, runs) for name in self._names.values()]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


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


def _column(name: str, arrays: dict[str, pa.Array], runs: list[tuple[TopicPartition, int]]) -> pa.Array:
    """Returns a column as Spark has it, from the columns of `klamm.arrow`."""
    match name:
        case "topic":
            return pa.concat_arrays([pa.repeat(pa.scalar(tp.topic), count) for tp, count in runs])
        case "partition":
            return pa.concat_arrays([pa.repeat(pa.scalar(tp.partition, pa.int32()), count) for tp, count in runs])
        case "timestamp":
            return _microseconds(arrays, runs)
        case "timestamp_type":
            return arrays[name].cast(pa.int32())
        case "headers":
            return _headers(arrays[name])
    return arrays[name]


def _headers(headers: pa.Array) -> pa.Array:
    """Returns headers with null for a record without headers, as in Spark's Kafka source."""
    return pa.ListArray.from_arrays(
        headers.offsets,
        headers.values,
        type=arrow_schema(("headers",)).field(0).type,
        mask=pc.equal(pc.list_value_length(headers), 0),
    )


def _microseconds(arrays: dict[str, pa.Array], runs: list[tuple[TopicPartition, int]]) -> pa.Array:
    """Returns the timestamps in microseconds. Raises InvalidTimestampError if one does not fit, as Spark's Kafka source
    does."""
    timestamps_ms = arrays["timestamp"].cast(pa.int64()).to_numpy()
    odd = np.flatnonzero((timestamps_ms > TIMESTAMP_MS_MAX) | (timestamps_ms < -TIMESTAMP_MS_MAX))
    if odd.size:
        row = int(odd[0])
        ends = np.cumsum([count for _, count in runs])
        tp = runs[int(np.searchsorted(ends, row, side="right"))][0]
        raise InvalidTimestampError(
            f"{tp} at offset {arrays['offset'][row]} has the timestamp {timestamps_ms[row]} ms;"
            f" Spark's timestamps hold at most {TIMESTAMP_MS_MAX} ms: read only other columns, such as"
            ' .schema("value BINARY, offset LONG")'
        )
    return arrays["timestamp"].cast(pa.timestamp("us", tz="UTC"))
