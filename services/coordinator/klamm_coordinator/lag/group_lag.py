"""What a group has still to read, as the coordinator tells it. Values, and the rules that compute them. Pure."""

from __future__ import annotations

from typing import NamedTuple

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.lag.histories import GroupHistories


class Holding(NamedTuple):
    """The open transaction that ends the records for readers with read_committed."""

    producer_id: int
    first_offset: int
    first_timestamp_ms: int | None


class Unread(NamedTuple):
    """What the leader of a partition answers about the records after a position."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    log_start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    record_count: int = 0
    next_timestamp_ms: int | None = None
    next_deletion_ms: int | None = None
    held_by: Holding | None = None


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    commit_ms: int


class PartitionLag(NamedTuple):
    """What a group has still to read in a partition. A number that is not known is None."""

    partition: TopicPartition
    unread: Unread
    committed: Committed | None = None
    unchanged_since_ms: int | None = None
    """The time of the first commit of the committed offset."""
    lag: int | None = None
    """The number of unread records."""
    behind_ms: int | None = None
    """The age of the next unread record, 0 without one."""
    lost_count: int = 0
    """The number of records that were deleted before the group read them."""
    commit_interval_ms: int | None = None
    """The usual time between two commits that moved the offset."""
    consumed_per_s: float | None = None
    consumed_before_per_s: float | None = None
    """The same in about the hour before the last ten minutes."""
    produced_per_s: float | None = None
    produced_before_per_s: float | None = None

    @property
    def catch_up_ms(self) -> int | None:
        """How long the group needs to read all records at the rates of now. None if it does not come closer, or if that
        is not known."""
        if self.lag is None or self.consumed_per_s is None or self.produced_per_s is None:
            return None
        gained_per_s = self.consumed_per_s - self.produced_per_s
        if not self.lag:
            return 0
        return round(1000 * self.lag / gained_per_s) if gained_per_s > 0 else None


def partition_lag(
    group_id: str,
    partition: TopicPartition,
    committed: Committed | None,
    unread: Unread,
    *,
    counted_lost: int,
    counted_to: int,
    histories: GroupHistories,
    now_ms: int,
) -> PartitionLag:
    """Returns what the group has still to read in a partition. `unread` is about the committed offset. `counted_lost`
    counts what the group lost before, up to the log start `counted_to`."""
    ends, offsets = histories.ends.get(partition), histories.committed.get((group_id, partition))
    found = PartitionLag(
        partition,
        unread,
        committed,
        lost_count=counted_lost,
        produced_per_s=None if ends is None else ends.rate(now_ms),
        produced_before_per_s=None if ends is None else ends.rate_before(now_ms),
        commit_interval_ms=None if offsets is None else offsets.change_interval_ms(),
        consumed_per_s=None if offsets is None else offsets.rate(now_ms),
        consumed_before_per_s=None if offsets is None else offsets.rate_before(now_ms),
    )
    if committed is None or committed.offset < 0:
        return found
    since_ms = None if offsets is None else offsets.since_ms(committed.offset)
    found = found._replace(unchanged_since_ms=committed.commit_ms if since_ms is None else since_ms)
    if unread.error_code:
        return found
    lost_count = counted_lost + uncounted_loss(committed.offset, unread.log_start_offset, counted_to)
    timestamp_ms = unread.next_timestamp_ms
    behind_ms = None if timestamp_ms is None else max(0, now_ms - timestamp_ms)
    return found._replace(
        lag=unread.record_count, lost_count=lost_count, behind_ms=behind_ms if unread.record_count else 0
    )


def uncounted_loss(committed: int, log_start_offset: int, counted_to: int) -> int:
    """Returns how many records were deleted before the group read them, and are not counted yet. All deleted records
    before `counted_to` are counted. A negative committed offset has lost nothing: the group begins where the reset
    policy of its members says."""
    return max(0, log_start_offset - max(committed, counted_to)) if committed >= 0 else 0
