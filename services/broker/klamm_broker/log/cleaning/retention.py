"""Decides which of a log's oldest segments retention deletes. Pure: it needs a few numbers per segment.

A segment is deleted for one of three reasons (Kafka's `UnifiedLog.deleteOldSegments`):

- the log start offset is beyond it (DeleteRecords), whatever the cleanup policy is;
- `retention.bytes`: without the segment, the log is still at least that large;
- `retention.ms`: the segment's largest timestamp is older than that.

Only the oldest segments are deleted, without a gap. A segment with records at or above the high watermark stays,
because these are not known to be replicated yet. The active segment is deleted only if it has records and all of them
have expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klamm_broker.log.log_config import LogConfig


class SegmentSummary(NamedTuple):
    """The properties of a segment that retention needs."""

    end_offset: int
    """The base offset of the next segment, or the log end offset."""
    size_bytes: int
    largest_timestamp_ms: int
    """The largest timestamp of its records, or the time of the last write if no record has a timestamp."""


def expired_count(
    segments: Sequence[SegmentSummary],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """Returns how many of the oldest segments may be deleted. If it is all of them, the caller must first roll the
    active segment."""
    deletable = _deletable_count(segments, high_watermark)
    count = below_start_count(segments, log_start_offset=log_start_offset, high_watermark=high_watermark)
    if "delete" not in config.cleanup_policy:
        return count
    if config.retention_bytes >= 0:
        count += over_size_count(segments[count:], deletable - count, config.retention_bytes)
    if config.retention_ms >= 0:
        count += over_time_count(segments[count:deletable], now_ms - config.retention_ms)
    return count


def below_start_count(segments: Sequence[SegmentSummary], *, log_start_offset: int, high_watermark: int) -> int:
    """Returns how many of the oldest segments are below the log start offset, so that no reader can read them."""
    deletable = _deletable_count(segments, high_watermark)
    return sum(1 for segment in segments[: min(deletable, len(segments) - 1)] if segment.end_offset <= log_start_offset)


def over_size_count(segments: Sequence[SegmentSummary], deletable: int, max_bytes: int) -> int:
    """Returns how many of the first `deletable` segments may go, so that at least `max_bytes` stay."""
    excess = sum(segment.size_bytes for segment in segments) - max_bytes
    count = 0
    while count < deletable and excess - segments[count].size_bytes >= 0:
        excess -= segments[count].size_bytes
        count += 1
    return count


def over_time_count(segments: Sequence[SegmentSummary], oldest_kept_ms: int) -> int:
    """Returns how many of the oldest segments end before this time, without a gap."""
    count = 0
    while count < len(segments) and segments[count].largest_timestamp_ms < oldest_kept_ms:
        count += 1
    return count


def _deletable_count(segments: Sequence[SegmentSummary], high_watermark: int) -> int:
    count = 0
    for segment in segments:
        is_empty_active = not segment.size_bytes and count == len(segments) - 1
        if segment.end_offset > high_watermark or is_empty_active:
            break
        count += 1
    return count
