"""The lag of groups, summed up from their partitions, which the coordinator describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from klamm.errors import GroupIdNotFoundError
from klamm.model import TopicPartition
from klamm_cli.text.amounts import duration, record_count

if TYPE_CHECKING:
    from klamm import Admin
    from klamm.admin import GroupLagDescription, GroupListing, PartitionLagDescription

SOON_MS: Final = 24 * 3_600_000
"""A line about a group tells when retention reaches its unread records, if that is sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The lag of a group, over all partitions in which it has committed an offset. Times are in milliseconds."""

    group_id: str
    type: str
    state: str
    lag: int
    """The number of records that the group has still to read."""
    partitions: int
    behind_ms: int = 0
    """The age of the oldest record that the group has still to read."""
    lost: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The number of records that were deleted before the group read them, by partition. Partitions without such records
    are left out."""
    deletion_ms: int | None = None
    """How long it takes until retention deletes the first unread record, or None if it is not expected to."""
    doomed: tuple[TopicPartition, ...] = ()
    """The partitions with unread records that retention is expected to delete, the first one first."""
    unchanged_ms: int | None = None
    """How long no offset of a partition with unread records has changed, or None if nothing is unread."""

    @property
    def lost_count(self) -> int:
        """The number of records that the group has lost in all partitions."""
        return sum(self.lost.values())


def describe_each(
    admin: Admin, group_ids: Iterable[str], *, timeout_ms: Callable[[], int | None] = lambda: None
) -> Iterator[GroupLagDescription]:
    """Yields what each group has still to read. A group that does not exist any more is left out. Raises KlammError."""
    for group_id in group_ids:
        try:
            yield admin.describe_group_lag([group_id], timeout_ms=timeout_ms())[group_id]
        except GroupIdNotFoundError:
            continue


def group_lag(group: GroupListing, described: GroupLagDescription) -> GroupLag:
    """Returns the lag of one group. Partitions whose leader did not answer do not count."""
    known = [partition for partition in described.partitions if partition.lag is not None]
    behind = [partition for partition in known if partition.lag]
    doomed = sorted(
        (partition.next_deletion_ms, partition.tp) for partition in behind if partition.next_deletion_ms is not None
    )
    unchanged_since_ms = [
        partition.unchanged_since_ms for partition in behind if partition.unchanged_since_ms is not None
    ]
    return GroupLag(
        group_id=group.group_id,
        type=group.type,
        state=group.state,
        lag=sum(partition.lag or 0 for partition in known),
        partitions=len(known),
        behind_ms=max((partition.behind_ms or 0 for partition in behind), default=0),
        lost={partition.tp: partition.lost_count for partition in described.partitions if partition.lost_count},
        deletion_ms=max(0, doomed[0][0] - described.time_ms) if doomed else None,
        doomed=tuple(tp for _, tp in doomed),
        unchanged_ms=max(0, described.time_ms - max(unchanged_since_ms)) if unchanged_since_ms else None,
    )


def in_words(described: GroupLagDescription) -> str:
    """Returns what a group has still to read in one line, such as "1,234 records behind, the oldest 4 min old"."""
    behind = [partition for partition in described.partitions if partition.lag]
    parts = [_behind_in_words(behind)]
    if behind:
        parts += _catching_up(behind)
        deletions_ms = [partition.next_deletion_ms for partition in behind if partition.next_deletion_ms is not None]
        left_ms = min(deletions_ms, default=described.time_ms + SOON_MS) - described.time_ms
        if left_ms < SOON_MS:
            parts.append(f"retention deletes unread records in {duration(max(0, left_ms))}")
    if described.lost_count:
        parts.append(f"lost {record_count(described.lost_count)}")
    return ", ".join(parts)


def _behind_in_words(behind: list[PartitionLagDescription]) -> str:
    if not behind:
        return "has read everything"
    oldest_ms = max((partition.behind_ms or 0 for partition in behind), default=0)
    return (
        f"{record_count(sum(partition.lag or 0 for partition in behind))} behind, the oldest {duration(oldest_ms)} old"
    )


def _catching_up(behind: list[PartitionLagDescription]) -> list[str]:
    """Returns when the group will have caught up, or that it comes no closer. Returns nothing if that is not known."""
    if any(partition.consumed_per_s is None or partition.produced_per_s is None for partition in behind):
        return []
    times_ms = [partition.catch_up_ms for partition in behind if partition.catch_up_ms is not None]
    if len(times_ms) < len(behind):
        return ["comes no closer to the end"]
    return [f"catches up in {duration(max(times_ms))}"]
