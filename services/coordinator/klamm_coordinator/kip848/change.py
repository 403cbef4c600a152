"""The records of one write of a consumer group, and the group as it will be after that write."""

from __future__ import annotations

from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.records.consumer_group_schemas import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    GroupEpoch,
    GroupEpochKey,
)
from klamm_coordinator.records.schemas import GroupRecord


class GroupChange:
    """The records of one write of a group. The durable group is not changed, so that a failed write has no effect."""

    def __init__(self, durable: ConsumerGroup) -> None:
        self.durable = durable
        """The group as it is stored."""
        self.group = durable
        """The group after the records of this write. It is the durable group until the first record, and then a
        copy."""
        self.records: list[GroupRecord] = []
        self._has_bumped = False

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def write(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        """Adds one record and applies it to the copy of the group."""
        if self.group is self.durable:
            self.group = self.durable.copy()
        self.group.replay(key, value)
        self.records.append(GroupRecord(key, value))

    def bump_epoch(self) -> None:
        """Increments the group's epoch, so that a new target is made. Does so once per write: all its requests share
        one target."""
        if not self._has_bumped:
            self._has_bumped = True
            self.write(GroupEpochKey(self.group_id), GroupEpoch(self.group.epoch + 1))
