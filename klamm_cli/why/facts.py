"""The facts about a group from which the causes of its lag follow. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from klamm.model import TopicPartition

if TYPE_CHECKING:
    from klamm.admin import GroupDescription, GroupLagDescription, MemberDescription, PartitionLagDescription


class Written(NamedTuple):
    """The records that are written into a partition, by the times of the records."""

    recent_count: int
    """The number of records of the last ten minutes."""
    per_s: float
    """The records of each second of the last minute."""
    before_per_s: float | None
    """The same in the hour before the last ten minutes. None if the partition had no records in most of that time."""


class OpenTransaction(NamedTuple):
    """An open transaction that a coordinator knows."""

    transactional_id: str
    open_ms: int
    timeout_ms: int


class KeyShare(NamedTuple):
    """A key, and its part of the sampled records of a partition, from 0 to 1."""

    key: str
    share: float


class KeySample(NamedTuple):
    """The most frequent keys among the newest records of a partition."""

    partition: TopicPartition
    record_count: int
    keys: Sequence[KeyShare]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyFacts:
    """The facts about one group."""

    description: GroupDescription
    lag: GroupLagDescription
    written: Mapping[TopicPartition, Written] = field(default_factory=dict)
    transactions: Mapping[int, OpenTransaction] = field(default_factory=dict)
    """The open transactions that hold records back, by producer id."""
    sample: KeySample | None = None
    """The keys of the partition that gets most records, if there is one."""

    @property
    def members(self) -> Sequence[MemberDescription]:
        """The members of the group."""
        return self.description.members

    def behind(self) -> list[PartitionLagDescription]:
        """Returns the partitions with unread records, that with the most first."""
        return sorted(
            (partition for partition in self.lag.partitions if partition.lag),
            key=lambda partition: -(partition.lag or 0),
        )

    def behind_ms(self) -> int:
        """Returns the age of the oldest unread record, in milliseconds."""
        return max((partition.behind_ms or 0 for partition in self.lag.partitions), default=0)

    def by_member(self) -> dict[str, list[PartitionLagDescription]]:
        """Returns the partitions of each member, by member id."""
        lags = {partition.tp: partition for partition in self.lag.partitions}
        return {member.member_id: [lags[tp] for tp in member.assignment if tp in lags] for member in self.members}
