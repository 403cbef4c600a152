"""Estimates how fast a log grows, by the timestamps of its segments. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from klamm_broker.log.cleaning.retention import SegmentSummary


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
