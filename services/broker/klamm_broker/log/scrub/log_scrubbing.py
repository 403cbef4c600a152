"""Checks one sealed segment against the disk, and prepares its rewriting, on the scrubber's thread.

The thread uses no object of the log, only a path and sizes. At the end, the event loop checks that the log has not
changed (`SegmentReplacement.has_planned`).
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.model import TopicPartition
from klamm.records.header import BatchHeader
from klamm_broker.log.cleaning.log_cleaning import CleaningSource, Pacer
from klamm_broker.log.files.cold_file import ColdFile, read_cold
from klamm_broker.log.files.leader_epochs import EpochEntry
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.scrub.segment_check import BatchRules, IndexFiles, SegmentBounds, SegmentVerdict, check_segment
from klamm_broker.log.scrub.segment_rewrite import SegmentRewrite
from klamm_broker.log.segment.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from klamm_server.runtime.disk import Disk

BATCH_COST_BYTES = 2048
"""The throttle counts a smaller batch as this many bytes, because it costs the interpreter's time rather than the
disk's."""

UNINDEXED_BYTES = 1024 * 1024
"""A segment up to this size may have no index entries, because `index.interval.bytes` may have been different when it
was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubJob:
    """The check of one segment, as it was when the job was planned. A thread calls `check` and `begin_rewrite`. Both
    raise OSError and the exceptions of the pacer."""

    disk: Disk
    topic_partition: TopicPartition
    directory: str
    config: LogConfig
    source: CleaningSource
    bounds: SegmentBounds
    epochs: tuple[EpochEntry, ...]
    aborted_count: int
    generation: int
    """The log's count of truncations when the job was planned."""

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return segment_path(self.directory, self.source.base_offset, suffix)

    def check(self, on_read: Pacer, pace: Pacer) -> SegmentVerdict:
        """Reads the whole segment from the disk, not from the page cache, and returns the verdict.

        `on_read` is called with the bytes read, and `pace` with the extra cost of small batches."""

        def on_batch(header: BatchHeader) -> None:
            if header.size_bytes < BATCH_COST_BYTES:
                pace(BATCH_COST_BYTES - header.size_bytes)

        files = IndexFiles(
            self._content(INDEX_SUFFIX),
            self._content(TIME_INDEX_SUFFIX),
            self._content(TRANSACTION_INDEX_SUFFIX),
            self.aborted_count,
            max(UNINDEXED_BYTES, 4 * self.config.index_interval_bytes),
        )
        file = ColdFile(self.disk, self.path(), pace=on_read)
        try:
            verdict = check_segment(file.read, self.bounds, self.epochs, files, on_batch=on_batch)
        finally:
            file.close()
        if all(damaged.end_offset <= self.bounds.log_start_offset for damaged in verdict.ranges):
            return SegmentVerdict(indexes=verdict.indexes)  # the damaged records are deleted
        return verdict

    def _content(self, suffix: str) -> bytes | None:
        try:
            return read_cold(self.disk, self.path(suffix))
        except FileNotFoundError:
            return None

    def begin_rewrite(self, pace: Pacer) -> SegmentRewrite:
        """Opens a rewrite of the segment. Its transaction index must be sound."""
        rewrite = SegmentRewrite(
            self.disk,
            self.directory,
            ColdFile(self.disk, self.path(), pace=pace),
            self.bounds,
            BatchRules(self.bounds, self.epochs),
            config=self.config,
            modified_ms=self.disk.modified_ms(self.path()),
            transactions=self._content(TRANSACTION_INDEX_SUFFIX) or b"",
            pace=pace,
        )
        try:
            rewrite.open()
        except OSError:
            rewrite.discard()
            raise
        return rewrite
