"""Plans the compaction of one log on the event loop: finds the dirty part, and prepares a cleaning for a thread.

`log_cleaning.py` runs on the thread. `segment_replacement.py` puts its result into the log.
"""

from __future__ import annotations

from klamm_broker.log.cleaning.cleanable import LogToClean, SealedSegment, log_to_clean
from klamm_broker.log.cleaning.log_cleaning import CleaningPlan
from klamm_broker.log.log_config import NO_LIMIT_MS
from klamm_broker.log.partition.log_flush import LogFlusher
from klamm_broker.log.partition.log_reader import LogReader
from klamm_broker.log.partition.log_segments import LogSegments
from klamm_broker.log.segment.segment import Segment


class LogCompaction:
    """The state of compaction of one log. `cleaned_to_offset` is never beyond the recovery point."""

    def __init__(self, segments: LogSegments, flusher: LogFlusher, reader: LogReader) -> None:
        self._segments = segments
        self._flusher = flusher
        self._reader = reader
        self.cleaned_to_offset = 0
        """The offset up to which compaction has cleaned the log."""

    def truncated(self) -> None:
        """Limits `cleaned_to_offset` to the log end, after a truncation."""
        self.cleaned_to_offset = min(self.cleaned_to_offset, self._segments.end_offset)

    def to_clean(self, *, last_stable_offset: int, now_ms: int) -> LogToClean:
        """Returns the part of the log that compaction can clean now."""
        segments = self._segments
        return log_to_clean(
            segments.topic_partition,
            [self._sealed(segment) for segment in segments.sealed],
            cleaned_to_offset=self.cleaned_to_offset,
            limit_offset=min(last_stable_offset, self._flusher.recovery_point),
            config=segments.config,
            now_ms=now_ms,
        )

    def _sealed(self, segment: Segment) -> SealedSegment:
        end_offset = self._segments.end_offset_of(segment)
        largest_ms = segment.indexes.largest.timestamp_ms
        return SealedSegment(segment.base_offset, end_offset, segment.files.size_bytes, largest_ms)

    def roll_overdue(self, *, now_ms: int) -> bool:
        """Rolls the active segment if its first record is older than `max.compaction.lag.ms`. Returns True if it did.

        The segment itself must be as old, too. Otherwise records with old timestamps would cause a roll at each check.
        Raises DiskFull."""
        segments = self._segments
        active, lag_ms = segments.active, segments.config.max_compaction_lag_ms
        if not segments.config.is_compacted or lag_ms == NO_LIMIT_MS or segments.is_closed:
            return False
        if not active.files.size_bytes:
            return False
        if segments.active_since_ms is not None and now_ms - segments.active_since_ms <= lag_ms:
            return False
        if segments.reading(lambda: active.age_ms(now_ms)) <= lag_ms:
            return False
        segments.check_usable()
        try:
            segments.roll(segments.end_offset, now_ms)
        except OSError as error:
            raise segments.failed(error, "roll of") from error
        return True

    def delay_ms(self, to_clean: LogToClean, *, now_ms: int) -> int:
        """Returns how long the oldest dirty record is overdue by `max.compaction.lag.ms`, in milliseconds. 0 or less
        means that none is overdue."""
        segments = self._segments
        if segments.config.max_compaction_lag_ms == NO_LIMIT_MS:
            return 0
        dirty = (
            segment for segment in segments.sealed if segments.end_offset_of(segment) > to_clean.first_dirty_offset
        )
        times = [segments.reading(segment.first_timestamp_ms) for segment in dirty]
        earliest_ms = min((time for time in times if time >= 0), default=now_ms)
        return now_ms - segments.config.max_compaction_lag_ms - earliest_ms

    def plan(self, to_clean: LogToClean) -> CleaningPlan:
        """Plans a cleaning up to the first uncleanable offset, for a thread."""
        segments = self._segments
        segments.check_usable()
        sources = [
            segments.source_of(segment)
            for segment in segments.sealed
            if segments.end_offset_of(segment) <= to_clean.first_uncleanable_offset
        ]
        between = self._reader.aborted_between
        return CleaningPlan(
            topic_partition=segments.topic_partition,
            directory=segments.directory,
            config=segments.config,
            sources=tuple(sources),
            first_dirty_offset=to_clean.first_dirty_offset,
            aborted=tuple(between(sources[0].base_offset, sources[-1].end_offset)) if sources else (),
            generation=segments.generation,
        )
