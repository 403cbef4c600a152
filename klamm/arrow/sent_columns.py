"""Arrow columns as the columns of records to send: partitions, headers, bytes and portions of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from klamm.arrow.record_packing import NO_PARTITION, Int64s
from klamm.records import encode_headers

_NO_HEADERS: Final = encode_headers(())
PORTION_BYTES: Final = 8 * 1024 * 1024
"""About how many bytes of rows are encoded together. A single row may be larger."""


def portions(batch: pa.RecordBatch, portion_bytes: int = PORTION_BYTES) -> Iterator[pa.RecordBatch]:
    """Yields the batch in portions of the same number of rows, which are small enough to be encoded with little
    memory."""
    rows = max(1, -(-batch.num_rows // max(1, round(batch.nbytes / portion_bytes))))
    for start in range(0, batch.num_rows, rows):
        some = batch.slice(start, rows)
        if some.num_rows > 1 and some.nbytes > 4 * portion_bytes:
            half = some.num_rows // 2
            yield from portions(some.slice(0, half), portion_bytes)
            yield from portions(some.slice(half), portion_bytes)
        else:
            yield some


def merged(batches: Iterable[pa.RecordBatch], wanted_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows in batches of about `wanted_bytes` or more: a table may have many small ones."""
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    for batch in batches:
        pending.append(batch)
        pending_bytes += batch.nbytes
        if pending_bytes >= wanted_bytes:
            yield from _joined(pending)
            pending, pending_bytes = [], 0
    yield from _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    made: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return made


def measurable(column: pa.Array) -> pa.Array:
    """Returns an array of which `nbytes` counts only its own rows. A slice of a view, or with a dictionary, counts the
    bytes of all rows."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    is_view = pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type)
    return column.cast(pa.large_binary()) if is_view else column


def bytes_of(column: pa.Array) -> pa.Array:
    """Returns strings or bytes as a binary array."""
    return column.cast(pa.binary())


def partitions_of(column: pa.Array) -> Int64s:
    """Returns integers as partitions, with NO_PARTITION for null. Raises ValueError for a negative one."""
    numbers = column.cast(pa.int64())
    lowest = pc.min(numbers).as_py()
    if lowest is not None and lowest < 0:
        raise ValueError(f"a row has partition {lowest}; expected 0 or more, or null")
    return np.array(numbers.fill_null(NO_PARTITION).to_numpy(zero_copy_only=False), np.int64)


def headers_of(column: pa.Array) -> pa.Array | None:
    """Returns the headers in the form that records have, or None if no row has headers. Raises ValueError for a header
    without a key."""
    if not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
        return None
    return pa.array([_encoded(headers) for headers in column.to_pylist()], pa.binary())


def _encoded(headers: list[Mapping[str, Any]] | None) -> bytes:
    if not headers:
        return _NO_HEADERS
    if any(header is None or header["key"] is None for header in headers):
        raise ValueError(f"a row has the headers {headers}; expected a key in every header")
    return encode_headers([(header["key"], header["value"]) for header in headers])
