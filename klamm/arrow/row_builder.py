"""Collects the records of fetched batches as Arrow columns, compiled or in pure Python.

A fetched batch may be small, but users of Arrow want thousands of rows. So a builder takes many sections before it
makes columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from klamm.arrow.record_columns import Int64s, RecordColumns, columns_of
from klamm.arrow.schema import HEADERS, TYPES, schema_of
from klamm.core import core
from klamm.model import TopicPartition
from klamm.records import Headers, InvalidRecordError, RecordSection, decode_section

INT64_MAX: Final = 2**63 - 1


class RowBuilder(Protocol):
    """The records that were added since the last `take`."""

    size_bytes: int
    """The bytes of keys, values and headers, at most."""

    @property
    def row_count(self) -> int:
        """The number of these records."""

    def add(self, sections: Sequence[RecordSection], start_offset: int = 0, end_offset: int = INT64_MAX) -> int:
        """Adds the records whose offsets are from `start_offset` to below `end_offset`. All records are checked.

        Returns the number of sections that were added. The section after them is damaged if that is fewer than all."""

    def take(self) -> dict[str, pa.Array]:
        """Removes and returns the columns."""


def add_all(builder: RowBuilder, sections: Sequence[RecordSection], start_offset: int, end_offset: int) -> None:
    """Adds sections to a builder. Raises the CorruptBatchError of the first damaged section, after those before it
    were added."""
    added = builder.add(sections, start_offset, end_offset)
    if added < len(sections):
        raise damage_of(sections[added])


def damage_of(section: RecordSection) -> InvalidRecordError:
    """Returns the error of a damaged section that decoding its records raises."""
    try:
        decode_section(section)
    except InvalidRecordError as error:
        return error
    raise AssertionError(f"the columns of the batch at offset {section.header.base_offset} are broken, not its records")


class PureRowBuilder:
    """A RowBuilder in pure Python, the reference of the compiled one. It makes the columns named."""

    def __init__(self, columns: Collection[str]) -> None:
        self._names = tuple(columns)
        self._chunks: list[Mapping[str, pa.Array]] = []
        self._row_count = 0
        self.size_bytes = 0

    @property
    def row_count(self) -> int:
        """The number of records that were added since the last `take`."""
        return self._row_count

    def add(self, sections: Sequence[RecordSection], start_offset: int = 0, end_offset: int = INT64_MAX) -> int:
        """Adds sections, as RowBuilder.add."""
        if not sections:
            return 0
        try:
            columns = columns_of(sections)
        except InvalidRecordError:
            return 0 if len(sections) == 1 else self._add_each(sections, start_offset, end_offset)
        offsets = columns.offsets
        rows = np.flatnonzero((offsets >= start_offset) & (offsets < end_offset))
        if rows.size:
            self._chunks.append({name: _column(name, columns, rows) for name in self._names})
            self._row_count += len(rows)
            self.size_bytes += sum(section.end - section.start for section in sections)
        return len(sections)

    def _add_each(self, sections: Sequence[RecordSection], start_offset: int, end_offset: int) -> int:
        for index, section in enumerate(sections):
            if not self.add([section], start_offset, end_offset):
                return index
        return len(sections)

    def take(self) -> dict[str, pa.Array]:
        """Removes and returns the columns."""
        chunks, self._chunks = self._chunks, []
        self._row_count = self.size_bytes = 0
        return {
            name: pa.concat_arrays([chunk[name] for chunk in chunks]) if chunks else pa.array([], TYPES[name])
            for name in self._names
        }


def _column(name: str, columns: RecordColumns, rows: Int64s) -> pa.Array:
    match name:
        case "key":
            return _binary(columns, columns.key_starts[rows], columns.key_lengths[rows])
        case "value":
            return _binary(columns, columns.value_starts[rows], columns.value_lengths[rows])
        case "headers":
            return pa.array([_pairs(columns.headers.get(row, ())) for row in rows.tolist()], HEADERS)
    numbers = {
        "offset": columns.offsets,
        "timestamp": columns.timestamps_ms,
        "timestamp_type": columns.timestamp_types,
        "leader_epoch": columns.leader_epochs,
    }[name]
    return pa.array(numbers[rows]).cast(TYPES[name])


def _pairs(headers: Headers) -> list[tuple[str, bytes | None]]:
    return list(headers)


def _binary(columns: RecordColumns, starts: Int64s, lengths: Int64s) -> pa.Array:
    """Returns the keys or values: every second element of a binary array over the batches' own bytes."""
    count = len(starts)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    spans = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(columns.data)])
    nulls = lengths < 0
    # A null index gives a null element.
    indices = pa.array(np.arange(0, 2 * count, 2, dtype=np.int64), mask=nulls if nulls.any() else None)
    return spans.take(indices)


class CompiledRowBuilder:
    """A RowBuilder over the compiled core's columns, which become Arrow's without a copy."""

    def __init__(self, columns: Collection[str]) -> None:
        self._names = tuple(columns)
        self._rows: Any = core.ColumnRows(self._names)
        self.size_bytes = 0

    @property
    def row_count(self) -> int:
        """The number of records that were added since the last `take`."""
        return self._rows.row_count  # type: ignore[no-any-return]

    def add(self, sections: Sequence[RecordSection], start_offset: int = 0, end_offset: int = INT64_MAX) -> int:
        """Adds sections, as RowBuilder.add."""
        rows = self._rows
        for index, section in enumerate(sections):
            before = rows.row_count
            if not rows.add(section, start_offset, end_offset):
                return index
            if rows.row_count > before:
                self.size_bytes += section.end - section.start
        return len(sections)

    def take(self) -> dict[str, pa.Array]:
        """Removes and returns the columns."""
        rows, self._rows = self._rows, core.ColumnRows(self._names)
        self.size_bytes = 0
        rows.shrink()
        return {name: _compiled_column(rows, name) for name in self._names}


def _compiled_column(rows: Any, name: str) -> pa.Array:
    match name:
        case "key" | "value":
            return _binary_array(pa.binary(), getattr(rows, name))
        case "headers":
            names = _binary_array(pa.string(), rows.header_names)
            contents = _binary_array(pa.binary(), rows.header_values)
            pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADERS.value_type))
            ends = pa.py_buffer(rows.header_ends)
            return pa.Array.from_buffers(HEADERS, rows.row_count, [None, ends], children=[pairs])
    return pa.Array.from_buffers(TYPES[name], rows.row_count, [None, pa.py_buffer(getattr(rows, name))])


def _binary_array(kind: pa.DataType, rows: Any) -> pa.Array:
    """Returns the array over the memory of a BinaryRows of the compiled core."""
    valid = pa.py_buffer(rows.valid) if rows.null_count else None
    buffers = [valid, pa.py_buffer(rows.ends), pa.py_buffer(rows.data)]
    return pa.Array.from_buffers(kind, rows.row_count, buffers, null_count=rows.null_count)


def row_builder(columns: Collection[str]) -> RowBuilder:
    """Returns a builder of the named columns, among those that differ from record to record."""
    return PureRowBuilder(columns) if core is None else CompiledRowBuilder(columns)


def record_batch(
    tp: TopicPartition, columns: Sequence[str], arrays: Mapping[str, pa.Array], row_count: int
) -> pa.RecordBatch:
    """Returns rows of one partition with these columns. `arrays` has those that differ from record to record."""
    return pa.RecordBatch.from_arrays(
        [arrays[name] if name in arrays else _constant(name, tp, row_count) for name in columns],
        schema=schema_of(columns),
    )


def _constant(name: str, tp: TopicPartition, row_count: int) -> pa.Array:
    if name == "topic":
        zeros = pa.Array.from_buffers(pa.int32(), row_count, [None, pa.py_buffer(bytes(4 * row_count))])
        return pa.DictionaryArray.from_arrays(zeros, pa.array([tp.topic]))
    assert name == "partition", name
    return pa.repeat(pa.scalar(tp.partition, pa.int32()), row_count)
