"""Forecasts where retention will have moved the start of a log a while from now, and when it deletes a record. Pure.

Retention deletes whole segments, so the start of a log moves in jumps. A line through its past positions does not
show the next jump. The forecast therefore applies the rules of `retention.py` to the expected clock and log:

- The segments are those of now, and the clock shows a later time, for `retention.ms`.
- The log grows as much as it grew in the same time before now, for `retention.bytes`.
- The groups of a hold stay at the offsets that the coordinators named last.

The forecast errs on the side of an early deletion. It assumes that the active segment is rolled in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from klamm_broker.log.cleaning.retention import SegmentSummary, expired_count
from klamm_broker.log.cleaning.retention_hold import decide
from klamm_broker.log.cleaning.written_bytes import written_bytes
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
    low_offset: int | None,
) -> int:
    """Returns the log start offset that retention is expected to have set `ahead_ms` after `now_ms`.

    `low_offset` is the lowest committed offset of a hold's groups, or None if it is not known."""
    later_ms = now_ms + ahead_ms
    # The new records lie above the high watermark, so that the rules never count their segment.
    still_to_come = SegmentSummary(high_watermark + 1, written_bytes(segments, now_ms - ahead_ms), later_ms)
    later = [*segments, still_to_come]
    if config.is_held:
        return decide(
            later,
            config,
            now_ms=later_ms,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            low_offset=low_offset,
        ).log_start_offset
    count = expired_count(
        later, config, now_ms=later_ms, log_start_offset=log_start_offset, high_watermark=high_watermark
    )
    return max(log_start_offset, segments[count - 1].end_offset) if count else log_start_offset


def forecast_deletion_ms(
    segments: Sequence[SegmentSummary], config: LogConfig, *, now_ms: int, offset: int, low_offset: int | None
) -> int | None:
    """Returns when retention is expected to delete the record at `offset`, in milliseconds since the epoch. Returns
    None if it is not expected to, because the topic has no limit or its log does not grow.

    `low_offset` is the lowest committed offset of a hold's groups, or None if it is not known."""
    if "delete" not in config.cleanup_policy:
        return None
    due_ms = _due_ms(segments, config.retention_ms, config.retention_bytes, now_ms=now_ms, offset=offset)
    if due_ms is None or not config.is_held or (low_offset is not None and low_offset > offset):
        return due_ms
    bound_ms, bound_bytes = config.retention_hold_max_ms, config.retention_hold_max_bytes
    bound_due_ms = _due_ms(segments, bound_ms, bound_bytes, now_ms=now_ms, offset=offset)
    return None if bound_due_ms is None else max(due_ms, bound_due_ms)


def _due_ms(
    segments: Sequence[SegmentSummary], limit_ms: int, limit_bytes: int, *, now_ms: int, offset: int
) -> int | None:
    """Returns when the segment with `offset` exceeds one of both limits. A negative limit is none."""
    older = [segment for segment in segments if segment.end_offset <= offset]
    doomed = segments[: len(older) + 1]
    due_ms = []
    if limit_ms >= 0:
        due_ms.append(max(segment.largest_timestamp_ms for segment in doomed) + limit_ms)
    if limit_bytes >= 0:
        missing_bytes = limit_bytes - sum(segment.size_bytes for segment in segments[len(doomed) :])
        grown_bytes = written_bytes(segments, now_ms - GROWTH_MS)
        if missing_bytes <= 0:
            due_ms.append(now_ms)
        elif grown_bytes:
            due_ms.append(now_ms + missing_bytes * GROWTH_MS // grown_bytes)
    return max(now_ms, min(due_ms)) if due_ms else None
