"""Finds the lowest committed offset of the groups for which retention waits. Pure.

A hold names groups, or means every group that has an offset in the partition. A named group without an offset has not
begun to read, so its offset is 0. So is a negative offset, with which some clients begin again by their reset policy.
A group that a user deleted holds nothing until it begins again. Offsets in an open transaction do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from klamm.model import TopicPartition
from klamm_coordinator.records.schemas import OffsetCommitValue

NOT_RELEASED: Final[Mapping[str, bytes]] = {}


class TopicHold(NamedTuple):
    """The hold of one topic."""

    partitions: Collection[TopicPartition]
    group_ids: Collection[str]
    """The groups that the hold names."""
    all_groups: bool
    """True if every group with an offset in a partition holds it."""
    topic_id: bytes = b""
    """The topic's id. A hold that was released is of the topic with the same id."""


class LowestOffsets:
    """Collects the lowest offset of each partition, a group at a time."""

    def __init__(self, holds: Iterable[TopicHold]) -> None:
        self._of_all: set[TopicPartition] = set()
        """The partitions that every group with an offset holds."""
        self._of_named: dict[str, list[TopicPartition]] = {}
        """The partitions that each named group holds."""
        self._topic_ids: dict[str, bytes] = {}
        self.lowest: dict[TopicPartition, tuple[int, str]] = {}
        """The lowest offset and its group, of each partition that a group holds."""
        for hold in holds:
            self._topic_ids.update((partition.topic, hold.topic_id) for partition in hold.partitions)
            if hold.all_groups:
                self._of_all.update(hold.partitions)
            for group_id in hold.group_ids:
                self._of_named.setdefault(group_id, []).extend(hold.partitions)

    @property
    def wants_all_groups(self) -> bool:
        return bool(self._of_all)

    @property
    def named_groups(self) -> Collection[str]:
        """The groups that a hold names."""
        return self._of_named.keys()

    def add(
        self,
        group_id: str,
        committed: Mapping[TopicPartition, OffsetCommitValue],
        released: Mapping[str, bytes] = NOT_RELEASED,
    ) -> None:
        """Adds the committed offsets of a group, and the ids of the topics whose hold its deletion has released. Most
        groups have few offsets, and requests many partitions, or the other way round."""
        for partition in self._of_named.get(group_id, ()):
            value = committed.get(partition)
            if value is not None or released.get(partition.topic) != self._topic_ids[partition.topic]:
                self._note(partition, group_id, 0 if value is None else value.offset)
        fewer, others = sorted((self._of_all, committed), key=len)
        for partition in fewer:
            if partition in others:
                self._note(partition, group_id, committed[partition].offset)

    def _note(self, partition: TopicPartition, group_id: str, offset: int) -> None:
        found = (max(0, offset), group_id)
        self.lowest[partition] = min(self.lowest.get(partition, found), found)
