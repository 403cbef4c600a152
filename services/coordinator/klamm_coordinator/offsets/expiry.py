"""Which offsets have expired (KIP-211): an offset lives as long as somebody may read on from it.

group is Empty                    retention counts from the moment it became so
group only stores offsets         from each offset's own commit
group is Stable, consumers        from the commit, for topics nobody subscribes to any more
group of the new protocol         likewise, in whatever state (as Kafka: it does not know since when it is Empty)
anything else                     nothing expires
record with an explicit expiry    at that time (records of version 1)
"""

from __future__ import annotations

from klamm.model import TopicPartition
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.consumer.group import ConsumerGroup
from klamm_coordinator.offsets.store import ShardOffsets
from klamm_coordinator.records.schemas import (
    NO_TIMESTAMP,
)


def expired_partitions(
    store: ShardOffsets, group: ClassicGroup, *, retention_ms: int, wall_ms: int
) -> list[TopicPartition]:
    """Partitions of which the offset has outlived its retention, in a stable order.

    One that is just being written, or that an open transaction may change, is left alone."""
    base = _retention_base(group)
    if base is _NOTHING_EXPIRES:
        return []
    return sorted(
        partition
        for partition, commit_ms, expire_ms in store.timestamps(group.group_id)
        if _is_expired(commit_ms, expire_ms, base, retention_ms=retention_ms, wall_ms=wall_ms)
        and not group.is_subscribed_to(partition.topic)
        and not store.is_undecided(group.group_id, partition)
    )


def expired_consumer_partitions(
    store: ShardOffsets, group: ConsumerGroup, *, retention_ms: int, wall_ms: int
) -> list[TopicPartition]:
    """Returns the expired partitions of a group of the new protocol. An offset expires by the time of its commit, if no
    member subscribes to its topic."""
    subscribed = group.subscribed_topics()
    return sorted(
        partition
        for partition, commit_ms, expire_ms in store.timestamps(group.group_id)
        if partition.topic not in subscribed
        and _is_expired(commit_ms, expire_ms, _COMMIT_TIME, retention_ms=retention_ms, wall_ms=wall_ms)
        and not store.is_undecided(group.group_id, partition)
    )


_COMMIT_TIME = "commit time"
_NOTHING_EXPIRES = "nothing expires"


def _retention_base(group: ClassicGroup) -> int | str:
    """The time from which retention counts: a time of the group, or each offset's commit time."""
    if group.protocol_type is None:
        return _COMMIT_TIME
    if group.state is ClassicGroupState.EMPTY:
        # Groups stored before version 2 of their record do not say since when they are Empty.
        return _COMMIT_TIME if group.state_timestamp_ms == NO_TIMESTAMP else group.state_timestamp_ms
    if group.state is ClassicGroupState.STABLE and group.subscribed_topics is not None:
        return _COMMIT_TIME
    return _NOTHING_EXPIRES


def _is_expired(commit_ms: int, expire_ms: int, base: int | str, *, retention_ms: int, wall_ms: int) -> bool:
    if expire_ms != NO_TIMESTAMP:
        return wall_ms >= expire_ms
    since_ms = base if isinstance(base, int) else commit_ms
    return wall_ms - since_ms >= retention_ms
