"""A consumer's position that the log no longer has, and the position at which the consumer continues instead.

Retention and DeleteRecords delete records before a slow consumer has read them. An unclean election cuts records off
that a consumer has read. In both cases `auto.offset.reset` decides where the consumer continues.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klamm.model import TopicPartition

UNKNOWN_OFFSET: Final = -1


class LostPosition(NamedTuple):
    """A position outside the log of its partition, and the log's bounds when the broker refused the position."""

    position: int
    log_start_offset: int = UNKNOWN_OFFSET
    """The first offset of the log; -1 if the broker did not say."""
    log_end_offset: int = UNKNOWN_OFFSET
    """The high watermark of the log; -1 if the broker did not say."""

    @property
    def is_beyond_the_end(self) -> bool:
        """True if the log was cut before the position. Without known bounds, the records before the position count as
        deleted."""
        return self.position > self.log_start_offset != UNKNOWN_OFFSET


class PositionReset(NamedTuple):
    """A consumer lost its place in a partition and continues elsewhere. `on.position.reset` is called with it."""

    topic_partition: TopicPartition
    group_id: str | None
    """The consumer's group, or None if it has no group.id."""
    old_position: int
    log_start_offset: int
    """The first offset of the log when the old position was refused; -1 if the broker did not say."""
    log_end_offset: int
    """The high watermark of the log at that time; -1 if the broker did not say."""
    new_position: int

    @property
    def records_skipped(self) -> int:
        """The number of offsets from the old position to the new one; 0 if the consumer goes back.

        It counts records that were deleted and records that the consumer passes over. Compacted records and control
        records have offsets too, so the number of records can be lower."""
        return max(0, self.new_position - self.old_position)

    def __str__(self) -> str:
        group = "a consumer without a group" if self.group_id is None else f"group {self.group_id!r}"
        bounds = f"the log starts at {_shown(self.log_start_offset)} and ends at {_shown(self.log_end_offset)}"
        return (
            f"{group} lost its position {self.old_position} in {self.topic_partition}: {bounds}; it continues at"
            f" {self.new_position} and skips {self.records_skipped} records"
        )


def _shown(offset: int) -> str:
    return "an unknown offset" if offset == UNKNOWN_OFFSET else str(offset)
