"""Groups and their members."""

from __future__ import annotations

from dataclasses import dataclass

from klamm.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group_id: str
    protocol_type: str
    """`consumer`, or empty for a group that only stores offsets."""
    state: str
    """Empty, PreparingRebalance, CompletingRebalance, Stable or Dead; of the new protocol Empty, Assigning, Reconciling
    or Stable."""
    type: str
    """`classic`, or `consumer` for the new protocol (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    """The topics that the member subscribes to. They are known only if it uses the consumer protocol."""
    assignment: tuple[TopicPartition, ...]
    epoch: int = -1
    """The member's epoch in the new protocol."""
    pattern: str = ""
    """The expression with which the member subscribes in the new protocol, or empty."""
    target: tuple[TopicPartition, ...] = ()
    """The member's target assignment in the new protocol."""
    type: str = "classic"
    """The member's protocol: `classic`, or `consumer` (KIP-848). A group that changes its protocol has members of
    both."""
    rebalance_timeout_ms: int | None = None
    """The rebalance timeout of the member, in milliseconds. Kafka's clients send `max.poll.interval.ms`. None if the
    server does not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    assignor: str
    """The name of the assignor that the group uses, or empty."""
    generation_id: int
    leader: str
    """The id of the member that computes assignments, or empty."""
    coordinator_id: int
    members: tuple[MemberDescription, ...]
    type: str = "classic"
    """The group's protocol: `classic`, or `consumer` (KIP-848). A consumer group has epochs instead of generations, and
    no leader."""
    group_epoch: int = -1
    """The group's epoch in the new protocol. It grows with every change of members, subscriptions or topics."""
    assignment_epoch: int = -1
    """The group epoch in the new protocol for which the coordinator last made assignments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLagDescription:
    """What a group has still to read in a partition. A value that is not known is None.

    Rates are known when the coordinator has looked at the group a few times (`group.lag.interval.ms`)."""

    tp: TopicPartition
    error: str = ""
    """Why the leader of the partition could not be asked. Empty if it could."""
    committed_offset: int | None = None
    committed_ms: int | None = None
    """The time of the commit, in milliseconds since the epoch."""
    unchanged_since_ms: int | None = None
    """The time since when the committed offset has been the same, in milliseconds since the epoch."""
    log_start_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    lag: int | None = None
    """The number of records that the group has still to read. Markers and records of aborted transactions do not count.
    Far from the end of the log, it is the number of offsets."""
    behind_ms: int | None = None
    """The age of the next record to read, in milliseconds. 0 if the group has read everything."""
    lost_count: int = 0
    """How many records were deleted before the group read them."""
    next_deletion_ms: int | None = None
    """The time at which retention is expected to delete the next record to read, in milliseconds since the epoch."""
    catch_up_ms: int | None = None
    """How long the group needs to read everything at the rates of now, in milliseconds. None if it comes no closer to
    the end."""
    commit_interval_ms: int | None = None
    """The usual time between two commits that moved the committed offset lately, in milliseconds."""
    consumed_per_s: float | None = None
    """The records that the group reads each second now."""
    consumed_before_per_s: float | None = None
    """The same in about the hour before the last ten minutes."""
    produced_per_s: float | None = None
    """The records that are written each second now."""
    produced_before_per_s: float | None = None
    """The same in about the hour before the last ten minutes."""
    held_by_producer_id: int | None = None
    """The producer of the open transaction after whose first record readers with `read_committed` get none. -1 if the
    transaction has ended and its marker is not replicated yet."""
    held_since_ms: int | None = None
    """The timestamp of the first record of that transaction, in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLagDescription:
    """What a group has still to read."""

    group_id: str
    time_ms: int
    """The time of the answer by the coordinator's clock, in milliseconds since the epoch."""
    partitions: tuple[PartitionLagDescription, ...]
    """The partitions of all topics that the group reads or has offsets of, sorted."""
    rebalances_per_hour: float | None = None
    """How often the group was rebalanced each hour in the last minutes. None if that is not known yet."""

    @property
    def lag(self) -> int:
        """The number of records that the group has still to read in all partitions in which that is known."""
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def lost_count(self) -> int:
        """The number of records that were deleted before the group read them."""
        return sum(partition.lost_count for partition in self.partitions)
