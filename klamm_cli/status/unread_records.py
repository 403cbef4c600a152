"""Counts the records that a group has still to read in a partition, and the records that it can never read. Pure.

Kafka's `kafka-consumer-groups` prints the end offset minus the committed offset as LAG. That number includes records
that retention or DeleteRecords removed before the group read them. Klamm's lag counts the records that are still
there, and `lost` counts the removed ones. Both are counted by offsets, as Kafka counts its lag: a compacted
partition, and one with transactions, hold fewer records than offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from klamm.model import TopicPartition


class LogBounds(NamedTuple):
    """The offsets between which a partition can be read."""

    start: int
    """The log start offset."""
    end: int
    """The offset after the last record that can be read: the high watermark."""


class Unread(NamedTuple):
    """The records of one partition that a group has not read."""

    lag: int
    """The number of unread records that the log still has."""
    lost: int
    """The number of records that were deleted before the group read them."""


def unread(committed: int, bounds: LogBounds) -> Unread | None:
    """Returns how many records follow the committed offset, or None if that offset is negative.

    A group with a negative offset begins where the `auto.offset.reset` of its members says, so nothing is lost."""
    if committed < 0:
        return None
    return Unread(lag=max(0, bounds.end - max(committed, bounds.start)), lost=max(0, bounds.start - committed))


def total_lag(committed: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, LogBounds]) -> int:
    """Returns the lag of a group over all partitions of which the bounds are known."""
    return sum(one.lag for _, one in _known(committed, bounds))


def lost_by_partition(
    committed: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, LogBounds]
) -> dict[TopicPartition, int]:
    """Returns how many records a group has lost, by partition, in order. Partitions without a loss are left out."""
    return {tp: one.lost for tp, one in sorted(_known(committed, bounds)) if one.lost}


def _known(
    committed: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, LogBounds]
) -> Iterable[tuple[TopicPartition, Unread]]:
    for tp, offset in committed.items():
        if tp in bounds and (found := unread(offset, bounds[tp])) is not None:
            yield tp, found
