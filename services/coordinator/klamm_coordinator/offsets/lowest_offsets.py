"""Finds the lowest committed offset of the groups for which retention waits. Pure.

A hold names groups, or means every group that has an offset in the partition. A named group without an offset has not
begun to read, so its offset is 0. So is a negative offset, with which some clients begin again by their reset policy.
Offsets in an open transaction do not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from klamm.model import TopicPartition
from klamm_coordinator.records.schemas import OffsetCommitValue


class TopicHold(NamedTuple):
    """The hold of one topic."""

    partitions: Collection[TopicPartition]
    group_ids: Collection[str]
    """The groups that the hold names."""
    all_groups: bool
    """True if every group with an offset in a partition holds it."""


class LowestOffsets:
    """Collects the lowest offset of each partition, a group at a time."""

    def __init__(self, holds: Iterable[TopicHold]) -> None:
        self._holds = list(holds)
        self.lowest: dict[TopicPartition, tuple[int, str]] = {}
        """The lowest offset and its group, of each partition that a group holds."""

    @property
    def wants_all_groups(self) -> bool:
        return any(hold.all_groups for hold in self._holds)

    def named_groups(self) -> set[str]:
        """Returns all groups that a hold names."""
        return {group_id for hold in self._holds for group_id in hold.group_ids}

    def add(self, group_id: str, committed: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """Adds the committed offsets of a group."""
        for hold in self._holds:
            is_named = group_id in hold.group_ids
            if not is_named and not hold.all_groups:
                continue
            for partition in hold.partitions:
                value = committed.get(partition)
                if value is not None or is_named:
                    offset = 0 if value is None else max(0, value.offset)
                    found = (offset, group_id)
                    self.lowest[partition] = min(self.lowest.get(partition, found), found)
