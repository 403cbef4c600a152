"""Puts a compacted or repaired segment, which a thread has written, into the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from klamm_broker.log.cleaning.log_cleaning import CleaningSource
from klamm_broker.log.partition.log_segments import LogSegments
from klamm_broker.log.partition.pending_deletion import PendingDeletion
from klamm_broker.log.segment.segment import Segment
from klamm_broker.log.segment.segment_swap import announce


class Planned(Protocol):
    """A change of a log that a thread has prepared."""

    @property
    def generation(self) -> int:
        """The log's count of truncations when the change was planned."""


class SegmentReplacement:
    """Lets one compaction or repair at a time rewrite a log, because both write `.cleaned` files into its directory."""

    def __init__(self, segments: LogSegments) -> None:
        self._segments = segments
        self.is_under_way = False
        """True while a compaction or a repair rewrites the log."""

    def has_planned(self, plan: Planned, sources: Sequence[CleaningSource]) -> bool:
        """Returns True if the segments are still neighbours in the log, and unchanged since the plan."""
        segments = self._segments
        unchanged = segments.has([source.segment for source in sources])
        return unchanged and segments.generation == plan.generation and not segments.is_closed

    def replace(
        self, sources: Sequence[CleaningSource], cleaned: Segment, *, now_ms: int, action: str = "compaction"
    ) -> PendingDeletion:
        """Puts a rewritten segment in the place of its sources, for which `has_planned` must be True.

        Raises LogDirFailure, or DiskFull without any change."""
        segments = self._segments
        segments.check_usable()
        try:
            announce(segments.disk, cleaned)
        except OSError as error:
            raise segments.failed(error, f"{action} of") from error
        try:
            paths = segments.replace([source.segment for source in sources], cleaned)
        except OSError as error:
            # The directory is between the old segments and the new one. Only the recovery of a restart can resolve
            # this.
            raise segments.log_dir.take_offline(error, f"{action} of {segments.topic_partition}") from error
        due_ms = now_ms + segments.config.file_delete_delay_ms
        return PendingDeletion(log_dir=segments.log_dir, paths=tuple(paths), due_ms=due_ms)
