"""Decides what retention deletes from a log whose topic has a hold (`retention.hold.groups`). Pure.

Retention waits until the groups of the hold have committed past a segment, or until a bound is reached:

    segments that retention alone deletes        retention.py
    of these, the ones that may go now           the groups have committed past their end, or
                                                 without them, the log is still as large as retention.hold.max.bytes, or
                                                 their newest record is older than retention.hold.max.ms

A segment below the log start offset goes in any case, because DeleteRecords is not held. The caller asks the
coordinators for the lowest committed offset of the groups. If they cannot tell, only the bounds release a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from klamm.setting import LONG_MAX
from klamm_broker.log.cleaning.retention import (
    SegmentSummary,
    below_start_count,
    expired_count,
    over_size_count,
    over_time_count,
)
from klamm_broker.log.cleaning.written_bytes import written_bytes
from klamm_broker.log.log_config import LogConfig

GROWTH_WINDOW_MS: Final = 4 * 3_600_000
"""The growth of the log in this time before now is the forecast of its growth."""


class LowOffset(NamedTuple):
    """The lowest committed offset of the hold's groups in one partition."""

    offset: int
    group_id: str
    """The group that committed it, or that has not committed an offset yet (then `offset` is 0)."""


NO_GROUP: Final = LowOffset(LONG_MAX, "")
"""No group of the hold has an offset in the partition, so nothing is held."""


class HoldDecision(NamedTuple):
    """What retention deletes now, and what it keeps for the groups."""

    segment_count: int
    """How many of the oldest segments to delete. If it is all of them, the caller must first roll the active
    segment."""
    log_start_offset: int
    """The log start offset after the deletion."""
    unread_count: int
    """The number of offsets that a bound releases although no group is known to have committed past them."""
    held_bytes: int
    """The bytes that retention alone would delete and that the hold keeps."""
    bound_due_ms: int | None
    """The time at which a bound is expected to release the first held segment. None if nothing is held, or no bound
    will be reached."""


def decide(
    segments: Sequence[SegmentSummary],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    low_offset: int | None,
) -> HoldDecision:
    """Returns what retention deletes of a log with a hold. `low_offset` is None if the coordinators cannot tell it."""
    expired = expired_count(
        segments, config, now_ms=now_ms, log_start_offset=log_start_offset, high_watermark=high_watermark
    )
    below_start = below_start_count(segments, log_start_offset=log_start_offset, high_watermark=high_watermark)
    read_offset = log_start_offset if low_offset is None else max(low_offset, log_start_offset)
    read = sum(1 for segment in segments[:expired] if segment.end_offset <= read_offset)
    count = max(below_start, min(expired, max(read, _bound_count(segments, config, now_ms))))
    start_offset = max(log_start_offset, segments[count - 1].end_offset) if count else log_start_offset
    return HoldDecision(
        segment_count=count,
        log_start_offset=start_offset,
        unread_count=max(0, start_offset - read_offset),
        held_bytes=sum(segment.size_bytes for segment in segments[count:expired]),
        bound_due_ms=_bound_due_ms(segments[count:], config, now_ms) if count < expired else None,
    )


def _bound_count(segments: Sequence[SegmentSummary], config: LogConfig, now_ms: int) -> int:
    """Returns how many of the oldest segments the bounds no longer let a hold keep."""
    count = 0
    if config.retention_hold_max_bytes >= 0:
        count = over_size_count(segments, len(segments), config.retention_hold_max_bytes)
    if config.retention_hold_max_ms >= 0:
        count += over_time_count(segments[count:], now_ms - config.retention_hold_max_ms)
    return count


def _bound_due_ms(segments: Sequence[SegmentSummary], config: LogConfig, now_ms: int) -> int | None:
    """Returns the time at which a bound will release the first of these segments."""
    times: list[int] = []
    if config.retention_hold_max_ms >= 0:
        times.append(segments[0].largest_timestamp_ms + config.retention_hold_max_ms)
    if config.retention_hold_max_bytes >= 0:
        size_bytes = sum(segment.size_bytes for segment in segments)
        room_bytes = config.retention_hold_max_bytes + segments[0].size_bytes - size_bytes
        grown_bytes = written_bytes(segments, now_ms - GROWTH_WINDOW_MS)
        if grown_bytes:
            times.append(now_ms + max(0, room_bytes) * GROWTH_WINDOW_MS // grown_bytes)
    return min(times, default=None)
