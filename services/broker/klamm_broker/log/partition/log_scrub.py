"""Selects the segments of one log that a scrub can check, and plans a job for each (`log_scrubbing.py`)."""

from __future__ import annotations

from klamm_broker.log.cleaning.log_cleaning import CleaningSource
from klamm_broker.log.files.leader_epochs import LeaderEpochCache
from klamm_broker.log.partition.log_compaction import LogCompaction
from klamm_broker.log.partition.log_flush import LogFlusher
from klamm_broker.log.partition.log_segments import LogSegments
from klamm_broker.log.scrub.log_scrubbing import ScrubJob
from klamm_broker.log.scrub.segment_check import SegmentBounds


class LogScrub:
    """Plans the scrub of one log."""

    def __init__(
        self, segments: LogSegments, flusher: LogFlusher, compaction: LogCompaction, epochs: LeaderEpochCache
    ) -> None:
        self._segments = segments
        self._flusher = flusher
        self._compaction = compaction
        self._epochs = epochs

    def sources(self) -> list[CleaningSource]:
        """Returns the sealed segments that are on disk and have records above the log start."""
        segments, limit = self._segments, self._flusher.recovery_point
        return [
            source
            for source in map(segments.source_of, segments.sealed)
            if segments.start_offset < source.end_offset <= limit and not source.segment.aborted.has_unwritten
        ]

    def plan(self, source: CleaningSource) -> ScrubJob:
        """Plans the check of one of `sources`, for a thread."""
        segments = self._segments
        segments.check_usable()
        config = segments.config
        return ScrubJob(
            disk=segments.disk,
            topic_partition=segments.topic_partition,
            directory=segments.directory,
            config=config,
            source=source,
            bounds=SegmentBounds(
                base_offset=source.base_offset,
                end_offset=source.end_offset,
                size_bytes=source.size_bytes,
                log_start_offset=segments.start_offset,
                is_gapless=not config.is_compacted and not self._compaction.cleaned_to_offset,
            ),
            epochs=self._epochs.entries,
            aborted_count=source.segment.aborted.count,
            generation=segments.generation,
        )
