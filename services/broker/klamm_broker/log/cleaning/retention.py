"""Which of a log's oldest segments may go: a pure decision over a few numbers per segment.

A segment goes for one of three reasons (Kafka's `UnifiedLog.deleteOldSegments`):

- the log start offset is beyond it (DeleteRecords), whatever the cleanup policy;
- `retention.bytes`: without it the log is still at least that large;
- `retention.ms`: its largest timestamp is older than that.

Only from the oldest on without a gap, and never a segment with records at or above the high watermark: they are not
known to be replicated yet. The active segment goes only if it has records and all of them expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klamm_broker.log.log_config import LogConfig


class SegmentSummary(NamedTuple):
    """A segment as retention sees it."""

    end_offset: int
    """Where the next segment begins, or the log ends."""
    size_bytes: int
    largest_timestamp_ms: int
    """The latest timestamp of its records; the time of the last write if none has a timestamp."""


def expired_count(
    segments: Sequence[SegmentSummary],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many of the oldest segments may be deleted; all of them means that the active one is to be rolled first."""
    deletable = _deletable_count(segments, high_watermark)
    count = _below_start(segments[: min(deletable, len(segments) - 1)], log_start_offset)
    if "delete" not in config.cleanup_policy:
        return count
    if config.retention_bytes >= 0:
        count += _over_size(segments[count:], deletable - count, config.retention_bytes)
    if config.retention_ms >= 0:
        count += _over_time(segments[count:deletable], now_ms - config.retention_ms)
    return count


def _deletable_count(segments: Sequence[SegmentSummary], high_watermark: int) -> int:
    count = 0
    for segment in segments:
        is_empty_active = not segment.size_bytes and count == len(segments) - 1
        if segment.end_offset > high_watermark or is_empty_active:
            break
        count += 1
    return count


def _below_start(segments: Sequence[SegmentSummary], log_start_offset: int) -> int:
    return sum(1 for segment in segments if segment.end_offset <= log_start_offset)


def _over_size(segments: Sequence[SegmentSummary], deletable: int, retention_bytes: int) -> int:
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    while count < deletable and excess - segments[count].size_bytes >= 0:
        excess -= segments[count].size_bytes
        count += 1
    return count


def _over_time(segments: Sequence[SegmentSummary], oldest_kept_ms: int) -> int:
    count = 0
    while count < len(segments) and segments[count].largest_timestamp_ms < oldest_kept_ms:
        count += 1
    return count
