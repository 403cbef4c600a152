"""Record batches of the log as Arrow record batches for Spark, a column at a time: no Python object per value.

A fetched batch is small (16 KiB by default) where Spark wants thousands of rows: the columns of several are put
together up to `ROWS_MAX` rows or `BYTES_MAX` bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from klamm.isolation import VisibleBatches
from klamm.model import TopicPartition
from klamm.records import BatchHeader, RecordSpans, iter_headers, record_spans
from pyspark_klamm.cluster_access import FetchedBatches
from pyspark_klamm.offsets import OffsetRange
from pyspark_klamm.schema import arrow_schema

ROWS_MAX: Final = 20_000
BYTES_MAX: Final = 8 * 1024 * 1024


class ArrowBuilder:
    """Collects rows of the wanted columns and gives out Arrow record batches."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._makers = [_MAKERS[name] for name in columns]
        self._chunks: list[list[pa.Array]] = []
        self._rows = 0
        self._bytes = 0

    def rows(
        self, wanted: OffsetRange, fetches: Iterable[FetchedBatches], *, check_crcs: bool
    ) -> Iterator[pa.RecordBatch]:
        """Record batches of `wanted`; what is left over stays until `finish`."""
        for fetched in fetches:
            visible = VisibleBatches(fetched.aborted_transactions)
            for position, header in iter_headers(fetched.records):
                if visible.hides(header, fetched.records, position):
                    continue
                spans = record_spans(fetched.records, position, check_crc=check_crcs)
                self._add(_Rows(wanted, header, spans))
                if self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX:
                    yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows that were not given out yet, as one batch if there are any."""
        if self._rows:
            columns = [pa.concat_arrays(chunks) for chunks in zip(*self._chunks, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._chunks, self._rows, self._bytes = [], 0, 0

    def _add(self, rows: _Rows) -> None:
        if rows.count:
            self._chunks.append([make(rows) for make in self._makers])
            self._rows += rows.count
            self._bytes += len(rows.spans.data)


class _Rows:
    """The records of one batch that lie in the wanted range: `spans[low:high]`."""

    def __init__(self, wanted: OffsetRange, header: BatchHeader, spans: RecordSpans) -> None:
        self.tp: TopicPartition = wanted.tp
        self.header = header
        self.spans = spans
        self.low = bisect_left(spans.offsets, wanted.start_offset)
        self.high = bisect_left(spans.offsets, wanted.end_offset)
        self.count = max(0, self.high - self.low)

    def binary(self, starts: array[int], lengths: array[int]) -> pa.Array:
        """Keys or values: every second element of a binary array over the batch's own bytes."""
        start = np.frombuffer(starts, np.int32)[self.low : self.high]
        length = np.frombuffer(lengths, np.int32)[self.low : self.high]
        bounds = np.empty(2 * self.count, np.int32)
        bounds[0::2] = start
        bounds[1::2] = start + np.maximum(length, 0)
        spans = pa.Array.from_buffers(
            pa.binary(), 2 * self.count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.spans.data)]
        )
        # A null index gives a null element.
        indices = pa.array(np.arange(0, 2 * self.count, 2, dtype=np.int64), mask=length < 0)
        return spans.take(indices)

    def int64(self, values: array[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.frombuffer(values, np.int64)[self.low : self.high]


def _timestamp(rows: _Rows) -> pa.Array:
    microseconds = rows.int64(rows.spans.timestamps_ms) * 1000
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows.count, [None, pa.py_buffer(microseconds)])


def _headers(rows: _Rows) -> pa.Array:
    """Null for a record without headers, as Spark's Kafka source has it."""
    headers = rows.spans.headers
    lists = [
        [{"key": key, "value": value} for key, value in headers[index]] if index in headers else None
        for index in range(rows.low, rows.high)
    ]
    return pa.array(lists, type=arrow_schema(("headers",)).field(0).type)


_MAKERS: Final[dict[str, Callable[[_Rows], pa.Array]]] = {
    "key": lambda rows: rows.binary(rows.spans.key_starts, rows.spans.key_lengths),
    "value": lambda rows: rows.binary(rows.spans.value_starts, rows.spans.value_lengths),
    "topic": lambda rows: pa.repeat(pa.scalar(rows.tp.topic), rows.count),
    "partition": lambda rows: pa.repeat(pa.scalar(rows.tp.partition, pa.int32()), rows.count),
    "offset": lambda rows: pa.array(rows.int64(rows.spans.offsets)),
    "timestamp": _timestamp,
    "timestampType": lambda rows: pa.repeat(pa.scalar(int(rows.header.timestamp_type), pa.int32()), rows.count),
    "headers": _headers,
}
