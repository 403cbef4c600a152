"""Compacts one log: keeps the last record of each key, unchanged and at its offset. Kafka's `Cleaner`.

A thread of the cleaner makes two passes. The first pass reads the dirty part and keeps the last offset of each key
(`offset_map.py`), until the map is full. The second pass rewrites every segment up to there. It drops records with a
later record of the same key, and expired tombstones (KIP-534). A batch becomes:

| batch | becomes |
|---|---|
| all records stay | the same bytes, not encoded again |
| some records stay | the batch with those: same offsets, same producer fields (`klamm.records.rewrite`) |
| it has a tombstone for the first time | as above, with the time when it expires: `delete.retention.ms` from now |
| it belongs to an aborted transaction | as if no record stayed |
| no record stays | removed (without decoding it in the dirty part), but two kinds leave their header: |
| … the last batch of a producer that may still write | the header, so that its sequence numbers stay known |
| … the last batch of the new segment | the header, so that the segment ends where the next one begins |
| a marker whose transaction still has batches | the same bytes, and its entry of the transaction index |
| a marker whose transaction has no batches | removed, `delete.retention.ms` after this was first found |
| … the last batch of a producer that may still write | the same bytes, because its epoch fences smaller ones |

Segments are replaced oldest first, so that a tombstone is never removed before the records that it deletes. The thread
uses no object of the log, only paths and sizes. At the end, the event loop checks that the log has not changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from klamm.model import TopicPartition
from klamm.records.errors import DecompressedTooLargeError
from klamm.records.header import BatchHeader, Buffer, read_header, validate_batch
from klamm.records.keys import RecordKeys, read_keys
from klamm.records.rewrite import retain_header, retain_records
from klamm_broker.log.cleaning.cleanable import group_by_size
from klamm_broker.log.cleaning.cleaned_transactions import AbortedRanges, MarkerNeeds
from klamm_broker.log.cleaning.large_batch import LargeBatch
from klamm_broker.log.cleaning.offset_map import OffsetMap
from klamm_broker.log.log_config import NO_LIMIT_MS, LogConfig
from klamm_broker.log.segment.batch_scan import scan_batches, scan_headers
from klamm_broker.log.segment.check_budget import WHOLE_BYTES_MAX
from klamm_broker.log.segment.record_set import AppendedBatch
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_files import CLEANED_SUFFIX
from klamm_broker.log.segment.segment_swap import make_durable
from klamm_broker.log.segment.time_index import latest_timestamp_ms
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_server.runtime.disk import Disk


class CleaningSource(NamedTuple):
    """A sealed segment at the time when the cleaning was planned."""

    segment: Segment
    """The segment object. A cleaning does not use it, and only returns it to the log."""
    path: str
    base_offset: int
    end_offset: int
    """The base offset of the next segment."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """The input of one cleaning, from `LogCompaction.plan`."""

    topic_partition: TopicPartition
    directory: str
    config: LogConfig
    sources: tuple[CleaningSource, ...]
    """The segments from the start of the log to the first uncleanable offset."""
    first_dirty_offset: int
    aborted: tuple[AbortedTransaction, ...]
    """The transactions that wrote to the sources, or whose markers are in them."""
    generation: int
    """The log's count of truncations when the cleaning was planned."""


class Pacer(Protocol):
    """Called after each batch with the number of bytes read or written. It may wait, and it raises an exception to end
    the cleaning."""

    def __call__(self, size_bytes: int) -> None: ...


@dataclass(slots=True)
class CleaningStats:
    """The statistics of one cleaning."""

    mapped_bytes: int = 0
    """The bytes that the first pass has read."""
    read_bytes: int = 0
    """The bytes that the second pass has read."""
    written_bytes: int = 0
    read_records: int = 0
    written_records: int = 0
    key_count: int = 0
    buffer_utilization: float = 0.0
    """The share of the dedupe buffer that was used, 0.0 to 1.0."""


class LogCleaning:
    """One cleaning of one log. The caller calls `build_offset_map`, then `clean` for each of `groups`, then `close`.
    All calls may raise OSError, CorruptBatchError and the exceptions of the pacer."""

    def __init__(
        self,
        disk: Disk,
        plan: CleaningPlan,
        *,
        dedupe_buffer_bytes: int,
        io_buffer_bytes: int,
        producer_id_expiration_ms: int,
        pace: Pacer,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._plan = plan
        self._map = OffsetMap(dedupe_buffer_bytes)
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._io_buffer_bytes = io_buffer_bytes
        self._oldest_write_ms = now_ms - producer_id_expiration_ms
        self._pace = pace
        self._now_ms = now_ms
        self._last_of_producer: dict[int, int] = {}
        """The last offset of each producer's last batch, by producer id. If a marker with a greater epoch follows, its
        offset instead. Expired producers have no entry."""
        self._epochs: dict[int, int] = {}
        self._aborted = AbortedRanges(plan.aborted)
        self._marker_needs = MarkerNeeds()
        self.end_offset = plan.first_dirty_offset
        """The end of the offset map. After the cleaning, the log is clean before this offset."""
        self.stats = CleaningStats()

    # The first pass

    def build_offset_map(self) -> None:
        """Reads the dirty part of the log until the map is full, and the batch headers of the clean part."""
        for source in self._plan.sources:
            if self._map.is_full:
                break
            if source.end_offset <= self._plan.first_dirty_offset:
                self._note_producers(source)
            else:
                self._map_segment(source)
        self._map.seal()
        self.stats.key_count = len(self._map)
        self.stats.buffer_utilization = self._map.used_bytes / self._dedupe_buffer_bytes

    def _note_producers(self, source: CleaningSource) -> None:
        with _Opened(self._disk, source) as opened:
            for _, header in scan_headers(self._disk, opened.fd, 0, source.size_bytes):
                self._note_producer(header, opened.modified_ms)
                self._pace(0)

    def _map_segment(self, source: CleaningSource) -> None:
        with _Opened(self._disk, source) as opened:
            for header, batch in self._batches(opened.fd, source):
                if self._map.is_full:
                    return
                self._note_producer(header, opened.modified_ms)
                end_offset = header.next_offset
                if self._is_dirty(header) and not header.is_control and not self._aborted.holds(header):
                    end_offset = self._map_batch(header, batch)
                self.end_offset = max(self.end_offset, end_offset)
                self.stats.mapped_bytes += len(batch)
                if end_offset < header.next_offset:
                    return
        self.end_offset = max(self.end_offset, source.end_offset)

    def _map_batch(self, header: BatchHeader, batch: memoryview) -> int:
        """Returns the offset after the last record that was mapped, or the offset after the batch."""
        validate_batch(batch, allow_gaps=True)
        try:
            records = read_keys(batch, header, max_decompressed_bytes=WHOLE_BYTES_MAX)
        except DecompressedTooLargeError:
            return LargeBatch(header, batch, self._pace).map(self._map, self._plan.first_dirty_offset)
        base_offset = header.base_offset
        self._map.put(records.keys, [base_offset + delta for delta in records.offset_deltas])
        return header.next_offset

    def _is_dirty(self, header: BatchHeader) -> bool:
        return header.last_offset >= self._plan.first_dirty_offset

    def _note_producer(self, header: BatchHeader, modified_ms: int) -> None:
        producer_id = header.producer_id
        if producer_id < 0 or max(header.max_timestamp_ms, modified_ms) < self._oldest_write_ms:
            return
        if not header.is_control or (header.record_count and header.producer_epoch > self._epochs.get(producer_id, -1)):
            self._last_of_producer[producer_id] = header.last_offset
            self._epochs[producer_id] = header.producer_epoch

    # The second pass

    def groups(self) -> list[list[CleaningSource]]:
        """Returns the groups of segments that are combined into one segment each, oldest first."""
        sources = [source for source in self._plan.sources if source.base_offset < self.end_offset]
        return list(group_by_size(sources, self._plan.config))

    def clean(self, group: Sequence[CleaningSource]) -> Segment | None:
        """Writes the new segment of a group, synced, with the suffix `.cleaned`. Returns None if the group must stay
        unchanged."""
        cleaned = Segment(
            self._disk,
            self._plan.directory,
            group[0].base_offset,
            config=self._plan.config,
            created_ms=self._now_ms,
            roll_jitter_ms=0,
            file_suffix=CLEANED_SUFFIX,
        )
        cleaned.create()
        try:
            writer = _Writer(cleaned, self._io_buffer_bytes, self._pace)
            changed = len(group) > 1
            for source in group:
                changed |= self._clean_into(writer, source)
            writer.finish()
            self.stats.written_bytes += cleaned.files.size_bytes
            self.stats.written_records += writer.record_count
            if not changed:
                cleaned.delete()
                return None
            make_durable(self._disk, cleaned, modified_ms=self._disk.modified_ms(group[-1].path))
        except BaseException:
            cleaned.delete()
            raise
        cleaned.release()
        return cleaned

    def _clean_into(self, writer: _Writer, source: CleaningSource) -> bool:
        """Copies the retained batches of a segment. Returns True if a record was removed or changed."""
        changed = False
        with _Opened(self._disk, source) as opened:
            for header, batch in self._batches(opened.fd, source):
                kept = self._retained(header, batch)
                self.stats.read_bytes += len(batch)
                self.stats.read_records += header.record_count
                changed |= kept is not batch and header.record_count > 0
                if kept is None:
                    writer.owed = header
                    continue
                aborted = self._aborted.ended_by(header) if header.is_control else None
                if aborted is not None and kept is batch:
                    writer.note_aborted(aborted)
                    writer.write(header, batch)
                else:
                    writer.write(header if kept is batch else read_header(kept), kept)
        return changed

    def _retained(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """Returns `batch` itself if all of it stays, a rewritten batch if a part stays, or None if it is removed."""
        if header.is_control:
            return self._retained_marker(header, batch)
        self._marker_needs.note(header)
        if header.base_offset >= self.end_offset:
            return batch
        is_aborted = self._aborted.holds(header)
        kept = self._retained_records(header, batch) if header.record_count and not is_aborted else None
        if kept is not None:
            return kept
        if self._last_of_producer.get(header.producer_id) != header.last_offset or header.producer_id < 0:
            return None
        return retain_header(header) if header.record_count else batch

    def _retained_marker(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        if self._marker_needs.take(header) or header.base_offset >= self.end_offset:
            return batch
        if not header.record_count:
            return None
        if header.delete_horizon_ms is None:
            horizon_ms = min(self._now_ms + self._plan.config.delete_retention_ms, NO_LIMIT_MS)
            validate_batch(batch, allow_gaps=True)
            return retain_records(header, read_keys(batch, header), [0], delete_horizon_ms=horizon_ms)
        is_last = self._last_of_producer.get(header.producer_id) == header.last_offset
        return batch if is_last or header.delete_horizon_ms > self._now_ms else None

    def _retained_records(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        base_offset, is_dirty = header.base_offset, self._is_dirty(header)
        if header.last_offset >= self.end_offset:
            # The map was full after some records of a large batch.
            return self._retained_in_pieces(header, batch)
        survivors = self._map.survivors(base_offset, header.last_offset) if is_dirty else ()
        if is_dirty and not survivors:
            return None
        if not is_dirty:
            validate_batch(batch, allow_gaps=True)
        try:
            records = read_keys(batch, header, max_decompressed_bytes=WHOLE_BYTES_MAX)
        except DecompressedTooLargeError:
            return self._retained_in_pieces(header, batch)
        offsets = [base_offset + delta for delta in records.offset_deltas]
        if is_dirty:
            alive = set(survivors)
            indexes = [index for index, offset in enumerate(offsets) if offset in alive]
        else:
            indexes = [index for index, lives in enumerate(self._map.are_latest(records.keys, offsets)) if lives]
        return self._with_tombstones(header, batch, records, indexes)

    def _retained_in_pieces(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        horizon_ms = min(self._now_ms + self._plan.config.delete_retention_ms, NO_LIMIT_MS)
        large = LargeBatch(header, batch, self._pace)
        return large.retained(self._map, end_offset=self.end_offset, now_ms=self._now_ms, new_horizon_ms=horizon_ms)

    def _with_tombstones(
        self, header: BatchHeader, batch: memoryview, records: RecordKeys, indexes: list[int]
    ) -> Buffer | None:
        """Returns the batch with the records at `indexes`, without expired tombstones. Returns None if no record is
        left."""
        tombstones = [index for index in indexes if records.is_tombstone(index)]
        horizon_ms = None
        if not tombstones:
            pass
        elif header.delete_horizon_ms is None:
            horizon_ms = min(self._now_ms + self._plan.config.delete_retention_ms, NO_LIMIT_MS)
        elif header.delete_horizon_ms <= self._now_ms:
            gone = set(tombstones)
            indexes = [index for index in indexes if index not in gone]
        if not indexes:
            return None
        if len(indexes) == header.record_count and horizon_ms is None:
            return batch
        return retain_records(header, records, indexes, delete_horizon_ms=horizon_ms)

    def _batches(self, fd: int, source: CleaningSource) -> Iterator[tuple[BatchHeader, memoryview]]:
        for _, header, batch in scan_batches(self._disk, fd, 0, source.size_bytes, self._io_buffer_bytes):
            yield header, batch
            self._pace(len(batch))

    def sync_directory(self) -> None:
        """Syncs the directory, so that the names of the new segments survive a crash of the machine."""
        self._disk.fsync_directory(self._plan.directory)

    def close(self) -> None:
        """Frees the memory of the map."""
        self._map.clear()


class _Opened:
    """A context manager that opens the log file of a segment."""

    def __init__(self, disk: Disk, source: CleaningSource) -> None:
        self._disk = disk
        self._path = source.path
        self.fd = -1
        self.modified_ms = 0

    def __enter__(self) -> _Opened:
        self.fd = self._disk.open(self._path, os.O_RDONLY)
        self.modified_ms = self._disk.modified_ms(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.close(self.fd)


class _Writer:
    """Appends batches to the new segment, several with each system call."""

    def __init__(self, segment: Segment, buffer_bytes: int, pace: Pacer) -> None:
        self._segment = segment
        self._buffer_bytes = buffer_bytes
        self._pace = pace
        self._buffers: list[Buffer] = []
        self._batches: list[AppendedBatch] = []
        self._size_bytes = 0
        self.record_count = 0
        self.owed: BatchHeader | None = None
        """The header of the last batch that was read, if the batch was removed."""

    def write(self, header: BatchHeader, batch: Buffer) -> None:
        """Adds one whole batch, with its parsed header."""
        self.owed = None
        self.record_count += header.record_count
        self._buffers.append(batch)
        self._batches.append(AppendedBatch(header.last_offset, latest_timestamp_ms(header), len(batch)))
        self._size_bytes += len(batch)
        if self._size_bytes >= self._buffer_bytes:
            self._flush()

    def note_aborted(self, entry: AbortedTransaction) -> None:
        """Adds the transaction index entry of an aborted transaction whose marker is written next."""
        self._segment.aborted.append(entry)

    def finish(self) -> None:
        """Flushes. If the last batch was removed, writes its header first, so that the new segment ends where its last
        source ends."""
        if self.owed is not None:
            self.write(self.owed._replace(record_count=0), retain_header(self.owed))
        self._flush()

    def _flush(self) -> None:
        if not self._batches:
            return
        self._segment.append(self._buffers, self._batches, self._size_bytes)
        self._pace(self._size_bytes)
        self._buffers, self._batches, self._size_bytes = [], [], 0
