"""Where a log starts, and what of its oldest segments may go (`retention.py` decides)."""

from __future__ import annotations

from klamm_broker.log.cleaning.retention import SegmentSummary, expired_count
from klamm_broker.log.files.leader_epochs import LeaderEpochCache
from klamm_broker.log.partition.log_flush import LogFlusher
from klamm_broker.log.partition.log_segments import LogSegments
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.log.segment.segment import Segment


class LogRetention:
    """Moves the log start offset forward, and drops the segments before it."""

    def __init__(self, segments: LogSegments, flusher: LogFlusher, epochs: LeaderEpochCache) -> None:
        self._segments = segments
        self._flusher = flusher
        self._epochs = epochs

    def start_at(self, offset: int) -> None:
        """Records below `offset` are no longer served; their files go with the next `apply`."""
        self._segments.start_offset = offset
        self._epochs.truncate_from_start(offset)
        self._flusher.advance(min(offset, self._segments.end_offset))

    def apply(self, *, now_ms: int, high_watermark: int) -> PendingDeletion | None:
        """Drops the oldest segments that expired; their files are renamed now and to be removed when due."""
        segments = self._segments
        segments.check_usable()
        count = expired_count(
            [self._summary(segment) for segment in segments.items],
            segments.config,
            now_ms=now_ms,
            log_start_offset=segments.start_offset,
            high_watermark=high_watermark,
        )
        if not count:
            return None
        try:
            if count == len(segments.items):
                segments.roll(segments.end_offset, now_ms)
            paths = segments.retire_oldest(count)
        except OSError as error:
            raise segments.failed(error, "retention of") from error
        self.start_at(max(segments.start_offset, segments.items[0].base_offset))
        due_ms = now_ms + segments.config.file_delete_delay_ms
        return PendingDeletion(log_dir=segments.log_dir, paths=paths, due_ms=due_ms)

    def _summary(self, segment: Segment) -> SegmentSummary:
        segments = self._segments
        largest_ms = segment.indexes.largest.timestamp_ms
        if largest_ms < 0:
            largest_ms = segments.reading(lambda: segments.disk.modified_ms(segment.files.path()))
        return SegmentSummary(segments.end_offset_of(segment), segment.files.size_bytes, largest_ms)
