"""What a shard has promised: the state that its acknowledged records describe.

`replay` is the one mutator, used for each acknowledged write and for every record when the shard is loaded,
so that a shard that moves to another coordinator arrives as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.model import TopicPartition
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
        return group_id in self.groups or bool(self.offsets.of_group(group_id))

    def replay(self, record: Record) -> None:
        """Applies one acknowledged record."""
        match record:
            case Record(OffsetCommitKey(group_id, topic, partition), OffsetCommitValue() | None as value):
                self.offsets.replay(group_id, TopicPartition(topic, partition), value)
            case Record(GroupMetadataKey(group_id), GroupMetadataValue() as group):
                self.groups[group_id] = group
            case Record(GroupMetadataKey(group_id), None):
                self.groups.pop(group_id, None)
            case _:
                raise AssertionError(f"a key and value that do not belong together: {record}")

    def group_ids(self) -> Iterable[str]:
        """Every group there is anything about."""
        return sorted({*self.groups, *self.offsets.group_ids()})
