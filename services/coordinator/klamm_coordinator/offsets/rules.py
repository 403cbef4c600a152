"""What may happen to offsets: commit, delete, expire. Each rule gives the records that make it so.

Expiry is KIP-211's: an offset lives as long as somebody may read on from it.

    group is Empty                    retention counts from the moment it became so
    group only stores offsets         from each offset's own commit
    group is Stable, consumers        from the commit, for topics nobody subscribes to any more
    group of the new protocol         likewise, in whatever state (as Kafka: it does not know since when it is Empty)
    anything else                     nothing expires
    record with an explicit expiry    at that time (records of version 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.consumer_group.group import ConsumerGroup
from klamm_coordinator.group.group import Group
from klamm_coordinator.group.states import GroupState
from klamm_coordinator.offsets.messages import (
    CommitOffset,
    CommitOffsets,
    DeleteOffsets,
    FetchedOffset,
)
from klamm_coordinator.offsets.store import OffsetStore
from klamm_coordinator.records.schemas import NO_TIMESTAMP, OffsetCommitKey, OffsetCommitValue, Record


def commit_records(
    request: CommitOffsets, *, metadata_bytes_max: int, wall_ms: int
) -> tuple[tuple[Record, ...], tuple[ErrorCode, ...]]:
    """The records of a commit that is allowed, and each offset's code."""
    errors = tuple(_commit_error(offset, metadata_bytes_max) for offset in request.offsets)
    records = tuple(
        Record(
            OffsetCommitKey(request.group_id, offset.partition.topic, offset.partition.partition),
            OffsetCommitValue(offset.offset, offset.leader_epoch, offset.metadata, wall_ms),
        )
        for offset, error in zip(request.offsets, errors, strict=True)
        if error is ErrorCode.NONE
    )
    return records, errors


def _commit_error(offset: CommitOffset, metadata_bytes_max: int) -> ErrorCode:
    if offset.error is not ErrorCode.NONE:
        return offset.error
    # Each character takes at least a byte: most metadata need not be encoded to be measured.
    metadata = offset.metadata
    if len(metadata) > metadata_bytes_max or len(metadata.encode()) > metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def fetch(store: OffsetStore, group_id: str, partitions: Sequence[TopicPartition] | None) -> tuple[FetchedOffset, ...]:
    """The durable offsets asked for, in order; without a list all of them, by topic and partition."""
    stored = store.of_group(group_id)
    wanted = sorted(stored) if partitions is None else partitions
    return tuple(_fetched(partition, stored.get(partition)) for partition in wanted)


def unstable(
    store: OffsetStore, group_id: str, partitions: Sequence[TopicPartition] | None
) -> Iterable[TopicPartition]:
    """Those of them, or of all, that an open transaction may change."""
    found = store.unstable_partitions(group_id)
    return found if partitions is None else found.intersection(partitions)


def _fetched(partition: TopicPartition, value: OffsetCommitValue | None) -> FetchedOffset:
    if value is None:
        return FetchedOffset(partition=partition)
    return FetchedOffset(
        partition=partition,
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def delete_error(group: Group | None) -> ErrorCode:
    """Whether offsets of this group may be deleted: of a group with members only if it says what it reads."""
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def delete_records(
    store: OffsetStore, group: Group | ConsumerGroup, request: DeleteOffsets
) -> tuple[tuple[Record, ...], tuple[ErrorCode, ...]]:
    """Tombstones for what is there, and each partition's code: topics in use are refused (KIP-496)."""
    errors = tuple(
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(partition.topic) else ErrorCode.NONE
        for partition in request.partitions
    )
    stored = store.of_group(group.group_id)
    doomed = [
        partition
        for partition, error in zip(request.partitions, errors, strict=True)
        if error is ErrorCode.NONE and (partition in stored or store.is_undecided(group.group_id, partition))
    ]
    return tombstones(group.group_id, doomed), errors


def tombstones(group_id: str, partitions: list[TopicPartition]) -> tuple[Record, ...]:
    """Records that delete these offsets."""
    return tuple(
        Record(OffsetCommitKey(group_id, partition.topic, partition.partition), None) for partition in partitions
    )


def expired_partitions(store: OffsetStore, group: Group, *, retention_ms: int, wall_ms: int) -> list[TopicPartition]:
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
    store: OffsetStore, group: ConsumerGroup, *, retention_ms: int, wall_ms: int
) -> list[TopicPartition]:
    """As `expired_partitions`, of a group of the new protocol: from the commit, for topics nobody subscribes to."""
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


def _retention_base(group: Group) -> int | str:
    """From when retention counts: a time of the group, or each offset's commit time."""
    if group.protocol_type is None:
        return _COMMIT_TIME
    if group.state is GroupState.EMPTY:
        # Groups stored before version 2 of their record do not say since when they are Empty.
        return _COMMIT_TIME if group.state_timestamp_ms == NO_TIMESTAMP else group.state_timestamp_ms
    if group.state is GroupState.STABLE and group.subscribed_topics is not None:
        return _COMMIT_TIME
    return _NOTHING_EXPIRES


def _is_expired(commit_ms: int, expire_ms: int, base: int | str, *, retention_ms: int, wall_ms: int) -> bool:
    if expire_ms != NO_TIMESTAMP:
        return wall_ms >= expire_ms
    since_ms = base if isinstance(base, int) else commit_ms
    return wall_ms - since_ms >= retention_ms
