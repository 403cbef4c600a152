"""Owns the start of a log: moves it, drops expired segments, and forecasts it.

`retention.py` decides which segments expire, `retention_hold.py` which of them wait for groups, and
`retention_forecast.py` which ones will expire and when.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm_broker.log.cleaning.retention import SegmentSummary, below_start_count, expired_count
from klamm_broker.log.cleaning.retention_forecast import forecast_deletion_ms, forecast_start
from klamm_broker.log.cleaning.retention_hold import HoldDecision, decide
from klamm_broker.log.files.leader_epochs import LeaderEpochCache
from klamm_broker.log.partition.log_flush import LogFlusher
from klamm_broker.log.partition.log_segments import LogSegments
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.log.segment.segment import Segment


class HeldDeletion(NamedTuple):
    """What retention deleted of a log whose topic has a hold, and why."""

    decision: HoldDecision
    deletion: PendingDeletion | None
    """The files to remove later. None if no segment was deleted."""


class LogRetention:
    """Moves the log start offset forward, and drops the segments before it."""

    def __init__(self, segments: LogSegments, flusher: LogFlusher, epochs: LeaderEpochCache) -> None:
        self._segments = segments
        self._flusher = flusher
        self._epochs = epochs
        self._low_offset: int | None = None
        """The lowest committed offset of the hold's groups when retention asked last, for the forecast."""

    def start_at(self, offset: int) -> None:
        """Sets the log start offset. Records below it are no longer served. The next `apply` removes their files."""
        self._segments.start_offset = offset
        self._epochs.truncate_from_start(offset)
        self._flusher.advance(min(offset, self._segments.end_offset))

    def apply(self, *, now_ms: int, high_watermark: int) -> PendingDeletion | None:
        """Drops the oldest segments that have expired. Renames their files now, and returns the files for later
        removal.

        If retention waits for groups, only the segments below the log start offset go. `apply_held` drops the others
        at the leader, and a follower's log starts where the leader's does."""
        segments = self._segments
        segments.check_usable()
        summaries = segments.reading(lambda: self._summaries(now_ms))
        if segments.config.is_held:
            count = below_start_count(summaries, log_start_offset=segments.start_offset, high_watermark=high_watermark)
        else:
            count = self._expired_count(summaries, now_ms, high_watermark)
        return self._drop(count, now_ms) if count else None

    def waits(self, *, now_ms: int, high_watermark: int) -> bool:
        """Returns True if retention would delete segments now, but has to ask first what the groups have read."""
        segments = self._segments
        if not segments.config.is_held:
            return False
        segments.check_usable()
        summaries = segments.reading(lambda: self._summaries(now_ms))
        return self._expired_count(summaries, now_ms, high_watermark) > 0

    def apply_held(self, *, now_ms: int, high_watermark: int, low_offset: int | None) -> HeldDeletion:
        """Drops the oldest segments that have expired and that the groups of the hold do not need, as `apply`.

        `low_offset` is the lowest committed offset of the groups, or None if it is not known."""
        segments = self._segments
        segments.check_usable()
        self._low_offset = low_offset
        decision = decide(
            segments.reading(lambda: self._summaries(now_ms)),
            segments.config,
            now_ms=now_ms,
            log_start_offset=segments.start_offset,
            high_watermark=high_watermark,
            low_offset=low_offset,
        )
        return HeldDeletion(decision, self._drop(decision.segment_count, now_ms) if decision.segment_count else None)

    def _expired_count(self, summaries: list[SegmentSummary], now_ms: int, high_watermark: int) -> int:
        return expired_count(
            summaries,
            self._segments.config,
            now_ms=now_ms,
            log_start_offset=self._segments.start_offset,
            high_watermark=high_watermark,
        )

    def _drop(self, count: int, now_ms: int) -> PendingDeletion:
        """Drops the `count` oldest segments."""
        segments = self._segments
        try:
            if count == len(segments.items):
                segments.roll(segments.end_offset, now_ms)
            paths = segments.retire_oldest(count)
        except OSError as error:
            raise segments.failed(error, "retention of") from error
        self.start_at(max(segments.start_offset, segments.items[0].base_offset))
        due_ms = now_ms + segments.config.file_delete_delay_ms
        return PendingDeletion(log_dir=segments.log_dir, paths=paths, due_ms=due_ms)

    def forecast_start(self, *, now_ms: int, ahead_ms: int, high_watermark: int) -> int:
        """Returns the log start offset that retention will have set `ahead_ms` after `now_ms`.

        The method only reads, so threads other than the event loop's may call it. It may or may not see a change that
        happens at the same time."""
        segments = self._segments
        try:
            summaries = self._summaries(now_ms)
        except OSError:  # a segment was just deleted, or the disk failed, which the event loop will notice
            return segments.start_offset
        return forecast_start(
            summaries,
            segments.config,
            now_ms=now_ms,
            ahead_ms=ahead_ms,
            log_start_offset=segments.start_offset,
            high_watermark=high_watermark,
            low_offset=self._low_offset,
        )

    def forecast_deletion_ms(self, offset: int, *, now_ms: int) -> int | None:
        """Returns when retention is expected to delete the record at `offset`, in milliseconds since the epoch, or None
        if it is not expected to. Raises LogDirFailure."""
        segments = self._segments
        summaries = segments.reading(lambda: self._summaries(now_ms))
        return forecast_deletion_ms(
            summaries, segments.config, now_ms=now_ms, offset=offset, low_offset=self._low_offset
        )

    def _summaries(self, now_ms: int) -> list[SegmentSummary]:
        """Returns the segments as the rules need them, oldest first. Raises OSError."""
        found = list(self._segments.items)
        ends = [*(segment.base_offset for segment in found[1:]), found[-1].next_offset]
        return [
            SegmentSummary(end_offset, segment.files.size_bytes, self._largest_ms(segment, now_ms))
            for segment, end_offset in zip(found, ends, strict=True)
        ]

    def _largest_ms(self, segment: Segment, now_ms: int) -> int:
        """Returns the time that the age of a segment is counted from. An empty active segment has no age."""
        if segment is self._segments.active and not segment.files.size_bytes:
            return now_ms
        largest_ms = segment.indexes.largest.timestamp_ms
        return largest_ms if largest_ms >= 0 else self._segments.disk.modified_ms(segment.files.path())
