"""Forecasts where retention will have moved the start of a log a while from now, and when it deletes a record. Pure.

Retention deletes whole segments, so the start of a log moves in jumps. A line through its past positions does not
show the next jump. The forecast therefore applies the rules of `retention.py` to the expected clock and log:

- The segments are those of now, and the clock shows a later time, for `retention.ms`.
- The log grows as much as it grew in the same time before now, for `retention.bytes`.

The forecast errs on the side of an early deletion. It assumes that the active segment is rolled in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from klamm_broker.log.cleaning.retention import SegmentSummary, expired_count
from klamm_broker.log.log_config import LogConfig

GROWTH_MS: Final = 3_600_000
"""The time before now whose growth `forecast_deletion_ms` assumes for the time after now."""


def forecast_start(
    segments: Sequence[SegmentSummary],
    config: LogConfig,
    *,
    now_ms: int,
    ahead_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """Returns the log start offset that retention is expected to have set `ahead_ms` after `now_ms`."""
    later_ms = now_ms + ahead_ms
    # The new records lie above the high watermark, so that the rules never count their segment.
    still_to_come = SegmentSummary(high_watermark + 1, written_bytes(segments, now_ms - ahead_ms), later_ms)
    count = expired_count(
        [*segments, still_to_come],
        config,
        now_ms=later_ms,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )
    return max(log_start_offset, segments[count - 1].end_offset) if count else log_start_offset


def forecast_deletion_ms(
    segments: Sequence[SegmentSummary], config: LogConfig, *, now_ms: int, offset: int
) -> int | None:
    """Returns when retention is expected to delete the record at `offset`, in milliseconds since the epoch. Returns
    None if it is not expected to, because the topic has no limit or its log does not grow."""
    if "delete" not in config.cleanup_policy:
        return None
    older = [segment for segment in segments if segment.end_offset <= offset]
    doomed = segments[: len(older) + 1]
    due_ms = []
    if config.retention_ms >= 0:
        due_ms.append(max(segment.largest_timestamp_ms for segment in doomed) + config.retention_ms)
    if config.retention_bytes >= 0:
        missing_bytes = config.retention_bytes - sum(segment.size_bytes for segment in segments[len(doomed) :])
        grown_bytes = written_bytes(segments, now_ms - GROWTH_MS)
        if missing_bytes <= 0:
            due_ms.append(now_ms)
        elif grown_bytes:
            due_ms.append(now_ms + missing_bytes * GROWTH_MS // grown_bytes)
    return max(now_ms, min(due_ms)) if due_ms else None


def written_bytes(segments: Sequence[SegmentSummary], since_ms: int) -> int:
    """Returns about how many bytes were written to the log after `since_ms`, by the timestamps of the records.

    A segment counts as written evenly between the last timestamp of the segment before it and its own last one. The
    oldest segment does not count, because the time when it was begun is not known."""
    return sum(_written_of(before.largest_timestamp_ms, segment, since_ms) for before, segment in pairwise(segments))


def _written_of(began_ms: int, segment: SegmentSummary, since_ms: int) -> int:
    ended_ms = segment.largest_timestamp_ms
    if ended_ms <= since_ms:
        return 0
    if began_ms >= since_ms:
        return segment.size_bytes
    return segment.size_bytes * (ended_ms - since_ms) // (ended_ms - began_ms)
