"""Decides how much of a log compaction can clean now, and which segments it combines. Pure functions.

    |------------ clean ------------|---------- cleanable ----------|------- not yet -------|
    log start             first dirty offset            first uncleanable offset       log end

The log is clean up to the first dirty offset. Not cleanable yet are the active segment, and records that are not
committed, not on disk, or younger than `min.compaction.lag.ms`. Follows Kafka's `LogCleanerManager` and
`Cleaner.groupSegmentsBySize`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from klamm.model import TopicPartition
from klamm_broker.log.log_config import LogConfig
from klamm_broker.log.segment.offset_index import RELATIVE_OFFSET_MAX
from klamm_broker.log.segment.time_index import ENTRY_SIZE_BYTES


class SealedSegment(NamedTuple):
    """The properties of a sealed (not active) segment that compaction needs."""

    base_offset: int
    end_offset: int
    """The base offset of the next segment."""
    size_bytes: int
    largest_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """A log that may be cleaned, with the sizes that decide the order of cleanings."""

    topic_partition: TopicPartition
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: int

    @property
    def cleanable_ratio(self) -> float:
        """The dirty share of the log, 0.0 to 1.0. The metric `max-dirty-percent` is the largest one of all logs."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def first_uncleanable_offset(
    segments: Sequence[SealedSegment], *, first_dirty_offset: int, limit_offset: int, config: LogConfig, now_ms: int
) -> int:
    """Returns the end of the last segment that may be cleaned. All records before it are below `limit_offset` and older
    than `min.compaction.lag.ms`."""
    end = segments[0].base_offset if segments else 0
    for segment in segments:
        too_young = config.min_compaction_lag_ms > 0 and (
            segment.largest_timestamp_ms > now_ms - config.min_compaction_lag_ms
        )
        if segment.end_offset > limit_offset or (too_young and segment.end_offset > first_dirty_offset):
            break
        end = segment.end_offset
    return end


def log_to_clean(
    topic_partition: TopicPartition,
    segments: Sequence[SealedSegment],
    *,
    cleaned_to_offset: int,
    limit_offset: int,
    config: LogConfig,
    now_ms: int,
) -> LogToClean:
    """Returns the dirty part of the log. `segments` are all sealed segments. `cleaned_to_offset` comes from the
    checkpoint, 0 if the log was never cleaned."""
    start = segments[0].base_offset if segments else 0
    first_dirty = max(start, cleaned_to_offset)
    end = first_uncleanable_offset(
        segments, first_dirty_offset=first_dirty, limit_offset=limit_offset, config=config, now_ms=now_ms
    )
    return LogToClean(
        topic_partition=topic_partition,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=end,
        clean_bytes=sum(segment.size_bytes for segment in segments if segment.end_offset <= first_dirty),
        cleanable_bytes=sum(segment.size_bytes for segment in segments if first_dirty < segment.end_offset <= end),
        uncleanable_bytes=sum(segment.size_bytes for segment in segments if segment.end_offset > max(first_dirty, end)),
    )


class Groupable(Protocol):
    """A segment that may be combined with its neighbours."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


S = TypeVar("S", bound=Groupable)


def group_by_size(segments: Sequence[S], config: LogConfig) -> Iterator[list[S]]:
    """Yields groups of neighbouring segments. Each group fits into one segment even if no record is removed."""
    entries_max = config.segment_index_bytes // ENTRY_SIZE_BYTES
    max_bytes = min(config.segment_bytes, entries_max * max(1, config.index_interval_bytes))
    group: list[S] = []
    size_bytes = 0
    for segment in segments:
        fits = (
            size_bytes + segment.size_bytes <= max_bytes
            and group
            and segment.end_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if group and not fits:
            yield group
            group, size_bytes = [], 0
        group.append(segment)
        size_bytes += segment.size_bytes
    if group:
        yield group
