"""Reads a partition's fetched batches as Arrow columns, where FetchedDataReader makes records."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from klamm.arrow.row_builder import INT64_MAX, damage_of, record_batch, row_builder
from klamm.consumer.errors import BatchTooLargeError, CorruptRecordError
from klamm.consumer.fetch.column_request import ColumnRequest
from klamm.consumer.fetch.fetch_buffer import FetchedData
from klamm.consumer.fetch.fetched_data_reader import ReaderConfig
from klamm.isolation import VisibleBatches
from klamm.model import NO_LEADER_EPOCH
from klamm.records import (
    BatchHeader,
    CorruptBatchError,
    DecompressedTooLargeError,
    RecordSection,
    read_header,
    read_section,
)

_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most bytes of batches that become one Arrow batch. A single batch may be larger, but is below 2 GiB."""
_PORTION_BYTES: Final = 256 * 1024
"""The bytes of batches from which on their columns are made. Columns of many small batches cost less together."""


class _End(NamedTuple):
    """The position after a batch, and the leader epoch of the batch."""

    next_offset: int
    leader_epoch: int


class _Batch(NamedTuple):
    end: _End
    section: RecordSection | None
    """The records, or None if the reader does not see them."""

    @property
    def size_bytes(self) -> int:
        return 0 if self.section is None else self.section.end - self.section.start


class FetchedColumnsReader:
    """Reads one FetchedData from `next_offset` on, which is then the position after the rows returned so far."""

    def __init__(self, data: FetchedData, config: ReaderConfig, request: ColumnRequest, next_offset: int) -> None:
        self.data = data
        self.request = request
        self.next_offset = next_offset
        self.leader_epoch = NO_LEADER_EPOCH
        """The leader epoch of the last batch that was read from, including batches without visible records."""
        self._config = config
        self._start_offset = next_offset
        self._end_offset = request.end_offsets.get(data.tp, INT64_MAX)
        self._visible = VisibleBatches(data.aborted_transactions if config.read_committed else None)
        self._position = 0
        self._scanned = next_offset
        """The offset after the batches before `_position`."""
        self._held: _Batch | None = None
        """The batch before `_position` if the rows before it left it no room."""
        self._builder = row_builder({*request.columns, "offset", "leader_epoch"} - {"topic", "partition"})
        self._end = _End(next_offset, NO_LEADER_EPOCH)
        """The end of the batches in the builder, or in `_rows`."""
        self._rows: pa.RecordBatch | None = None
        """The rows that are read and not returned yet."""
        self._places: tuple[pa.Array, pa.Array] | None = None
        """The offsets and leader epochs of these rows."""
        self._failure: Exception | None = None

    @property
    def exhausted(self) -> bool:
        """True after all rows were returned and no error is left to raise."""
        is_at_end = self._held is None and self._position >= len(self.data.batches)
        return is_at_end and self._rows is None and self._failure is None

    def fits(self, request: ColumnRequest) -> bool:
        """Returns whether the reader makes what the request wants, up to the number of records."""
        return (self.request.columns, self.request.end_offsets) == (request.columns, request.end_offsets)

    def read(self, max_records: int) -> pa.RecordBatch | None:
        """Returns the next rows, or None if the reader is exhausted.

        Raises CorruptRecordError or BatchTooLargeError, after the rows before the batch at fault were returned. Raises
        it again until the consumer seeks past it."""
        while self._rows is None:
            if self._failure is not None:
                raise self._failure
            if self.exhausted:
                self.next_offset = max(self.next_offset, self.data.next_offset)
                return None
            self._load(max_records)
        return self._take(self._rows, max_records)

    def _take(self, rows: pa.RecordBatch, max_records: int) -> pa.RecordBatch:
        assert self._places is not None
        if rows.num_rows <= max_records:
            self._rows = self._places = None
            self._move_to_end()
            return rows
        offsets, epochs = self._places
        self.next_offset = offsets[max_records - 1].as_py() + 1
        self.leader_epoch = epochs[max_records - 1].as_py()
        self._places = offsets.slice(max_records), epochs.slice(max_records)
        self._rows = rows.slice(max_records)
        return rows.slice(0, max_records)

    def _move_to_end(self) -> None:
        self.next_offset = max(self.next_offset, self._end.next_offset)
        self.leader_epoch = self._end.leader_epoch

    def _load(self, max_records: int) -> None:
        """Reads batches until there are rows enough, or an error."""
        builder = self._builder
        while builder.row_count < max_records:
            portion = self._next_portion(_BYTES_MAX - builder.size_bytes)
            if not portion:
                break
            self._add(portion)
        count = builder.row_count
        if not count:
            self._move_to_end()
            return
        arrays = builder.take()
        self._places = arrays["offset"], arrays["leader_epoch"]
        self._rows = record_batch(self.data.tp, self.request.columns, arrays, count)

    def _next_portion(self, room_bytes: int) -> list[_Batch]:
        """Returns the next batches, or none at the end, before an error, and if they do not fit into `room_bytes`."""
        portion: list[_Batch] = []
        size_bytes = 0
        while size_bytes < _PORTION_BYTES and (batch := self._held or self._next_batch()) is not None:
            size_bytes += batch.size_bytes
            if size_bytes > room_bytes and (portion or self._builder.row_count):
                self._held = batch
                break
            self._held = None
            portion.append(batch)
        return portion

    def _next_batch(self) -> _Batch | None:
        """Returns the batch at the position and moves the position. Returns None at the end and after an error."""
        batches, position = self.data.batches, self._position
        if self._failure is not None or position >= len(batches):
            return None
        base_offset = next_offset = 0
        try:
            header = read_header(batches, position)
            base_offset, next_offset = header.base_offset, header.next_offset
            section = self._section(header)
        except DecompressedTooLargeError:
            max_bytes = self._config.max_decompressed_bytes
            self._failure = BatchTooLargeError(self.data.tp, max(self._scanned, base_offset), next_offset, max_bytes)
            return None
        except CorruptBatchError as error:
            self._fail(max(self._scanned, base_offset), error)
            return None
        self._scanned = max(self._scanned, next_offset)
        self._position += header.size_bytes
        return _Batch(_End(next_offset, header.partition_leader_epoch), section)

    def _section(self, header: BatchHeader) -> RecordSection | None:
        """Returns the records of the batch at the position, or None if the reader does not see them."""
        if self._visible.hides(header, self.data.batches, self._position):
            return None
        if self.data.was_read(header, self._start_offset) or header.base_offset >= self._end_offset:
            return None
        return read_section(
            self.data.batches,
            self._position,
            check_crc=self._config.check_crcs,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
        )

    def _add(self, portion: list[_Batch]) -> None:
        """Adds the rows of batches to the builder, up to one that is damaged."""
        sections = [batch.section for batch in portion if batch.section is not None]
        added = self._builder.add(sections, self._start_offset, self._end_offset)
        broken = sections[added] if added < len(sections) else None
        if broken is not None:
            portion = portion[: [batch.section for batch in portion].index(broken)]
        if portion:
            self._end = portion[-1].end
        if broken is not None:
            offset = max(self.next_offset, self._end.next_offset, broken.header.base_offset)
            self._fail(offset, damage_of(broken))

    def _fail(self, offset: int, error: Exception) -> None:
        self._held = None
        self._failure = CorruptRecordError(self.data.tp, offset)
        self._failure.__cause__ = error
