"""Decides which offsets have expired (KIP-211). An offset is kept while a member may still need it to continue reading.

group is Empty                    retention counts from the moment when it became Empty
group only stores offsets         retention counts from each offset's commit
group is Stable, consumers        retention counts from the commit, for topics without a subscribed member
group of the new protocol         as for Stable, in every state (as in Kafka: the time when it became Empty is unknown)
anything else                     nothing expires
record with an explicit expiry    the offset expires at that time (records of version 1)
"""

from __future__ import annotations

from klamm.model import TopicPartition
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.states import ClassicGroupState
from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.offsets.store import ShardOffsets
from klamm_coordinator.records.schemas import (
    NO_TIMESTAMP,
)


def expired_partitions(
    store: ShardOffsets, group: ClassicGroup, *, retention_ms: int, wall_ms: int
) -> list[TopicPartition]:
    """Returns the partitions whose offsets have outlived their retention, sorted. Skips an offset that is being
    written, or that an open transaction may change."""
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
    """Returns the time from which retention counts: a time of the group in ms, `_COMMIT_TIME` or `_NOTHING_EXPIRES`."""
    if group.protocol_type is None:
        return _COMMIT_TIME
    if group.state is ClassicGroupState.EMPTY:
        # Before version 2, the stored record of a group does not have the time when the group became Empty.
        return _COMMIT_TIME if group.state_timestamp_ms == NO_TIMESTAMP else group.state_timestamp_ms
    if group.state is ClassicGroupState.STABLE and group.subscribed_topics is not None:
        return _COMMIT_TIME
    return _NOTHING_EXPIRES


def _is_expired(commit_ms: int, expire_ms: int, base: int | str, *, retention_ms: int, wall_ms: int) -> bool:
    if expire_ms != NO_TIMESTAMP:
        return wall_ms >= expire_ms
    since_ms = base if isinstance(base, int) else commit_ms
    return wall_ms - since_ms >= retention_ms
