"""A change of one group in the making: the records of one write, and the group as they will make it."""

from __future__ import annotations

from klamm_coordinator.consumer.group import ConsumerGroup
from klamm_coordinator.records.consumer_group_schemas import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    GroupEpoch,
    GroupEpochKey,
)
from klamm_coordinator.records.schemas import GroupRecord


class GroupChange:
    """The durable group stays as it is: if the write fails, nothing has happened."""

    def __init__(self, durable: ConsumerGroup) -> None:
        self._durable = durable
        self.group = durable
        """A copy from the first record on."""
        self.records: list[GroupRecord] = []

    @property
    def group_id(self) -> str:
        return self.group.group_id

    def write(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        """One more record."""
        if self.group is self._durable:
            self.group = self._durable.copy()
        self.group.replay(key, value)
        self.records.append(GroupRecord(key, value))

    def bump_epoch(self) -> None:
        """A new target is needed. Once per write: one target serves all who came with it."""
        if self.group.epoch == self._durable.epoch:
            self.write(GroupEpochKey(self.group_id), GroupEpoch(self.group.epoch + 1))
