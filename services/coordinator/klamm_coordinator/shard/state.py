"""What a shard has promised: the state that its acknowledged records describe.

`replay` is the one mutator, used for each acknowledged write and for every record when the shard is loaded,
so that a shard that moves to another coordinator arrives as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm_coordinator.offsets.store import OffsetStore
from klamm_coordinator.records.schemas import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    Record,
)


class ShardState:
    """Groups as last stored, and offsets."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets = OffsetStore()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardState) and self.groups == other.groups and self.offsets == other.offsets

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, group_id: str) -> bool:
        """Whether there is anything about the group."""
        return group_id in self.groups or group_id in self.offsets.group_ids()

    def replay(self, record: Record, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies one acknowledged record; with a producer id, one of its transaction."""
        match record:
            case Record(OffsetCommitKey(group_id, topic, partition), OffsetCommitValue() as value) if producer_id >= 0:
                self.offsets.pending.add(producer_id, group_id, TopicPartition(topic, partition), value)
            case Record(OffsetCommitKey(group_id, topic, partition), OffsetCommitValue() | None as value):
                self.offsets.replay(group_id, TopicPartition(topic, partition), value)
            case Record(GroupMetadataKey(group_id), GroupMetadataValue() as group):
                self.groups[group_id] = group
            case Record(GroupMetadataKey(group_id), None):
                self.groups.pop(group_id, None)
            case _:
                raise AssertionError(f"a key and value that do not belong together: {record}")

    def end_transaction(self, producer_id: int, *, committed: bool) -> set[str]:
        """Applies one acknowledged marker; returns the groups it concerned."""
        return self.offsets.end_transaction(producer_id, committed=committed)

    def group_ids(self) -> Iterable[str]:
        """Every group there is anything about."""
        return sorted({*self.groups, *self.offsets.group_ids()})
