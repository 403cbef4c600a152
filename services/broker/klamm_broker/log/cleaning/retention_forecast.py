"""Forecasts where retention will have moved the start of a log a while from now. Pure.

Retention deletes whole segments, so the start of a log moves in jumps. A line through its past positions does not
show the next jump. The forecast therefore applies the rules of `retention.py` to the expected clock and log:

- The segments are those of now, and the clock shows a later time, for `retention.ms`.
- The log grows as much as it grew in the same time before now, for `retention.bytes`.

The forecast errs on the side of an early deletion. It assumes that the active segment is rolled in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from klamm_broker.log.cleaning.retention import SegmentSummary, expired_count
from klamm_broker.log.log_config import LogConfig


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
