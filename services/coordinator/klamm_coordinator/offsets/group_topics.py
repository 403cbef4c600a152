"""The topics that each group of a shard reads, each with the partitions that it had when the group began to read it.

    stored      as in the acknowledged records
    in flight   in records that are being written, so that nothing is written twice, and a deletion misses none

A member may ask for its offsets before the record is acknowledged. So answers use the topics in flight, too. If the
write fails, the member has read more than it had to, and has skipped nothing.

Invariant: no group with an empty dict of topics is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from klamm_coordinator.groups.sizes import group_topic_bytes
from klamm_coordinator.records.group_topic_schema import GroupTopicKey, GroupTopicValue
from klamm_coordinator.records.schemas import GroupRecord
from klamm_coordinator.runtime.accounts import Accounts

_NONE: Final[Mapping[str, GroupTopicValue]] = {}


class GroupTopics:
    """The topics of one shard's groups. Replayed records change the stored topics. `begin` and `end` of writes change
    those in flight."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._stored: dict[str, dict[str, GroupTopicValue]] = {}
        self._in_flight: dict[str, dict[str, list[GroupTopicValue | None]]] = {}
        """The values that are being written, oldest first, by group and topic. None is a deletion."""

    def __eq__(self, other: object) -> bool:
        """Returns True if both have the same stored topics."""
        return isinstance(other, GroupTopics) and self._stored == other._stored

    __hash__ = None  # type: ignore[assignment]

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of groups with stored topics."""
        return self._stored.keys()

    def of_group(self, group_id: str) -> Mapping[str, GroupTopicValue]:
        """Returns the stored topics of a group, by name."""
        return self._stored.get(group_id, _NONE)

    def newest_of_group(self, group_id: str) -> Mapping[str, GroupTopicValue]:
        """Returns the topics of a group, stored and in flight, by name."""
        in_flight = self._in_flight.get(group_id)
        if in_flight is None:
            return self.of_group(group_id)
        newest = {topic: values[-1] for topic, values in in_flight.items()}
        return {**self.of_group(group_id), **{topic: value for topic, value in newest.items() if value is not None}}

    def has(self, group_id: str, topic: str) -> bool:
        """Returns True if a record of this topic is stored, or is being written."""
        return topic in self.of_group(group_id) or self.is_in_flight(group_id, topic)

    def is_in_flight(self, group_id: str, topic: str) -> bool:
        """Returns True if a record of this topic is being written."""
        return topic in self._in_flight.get(group_id, ())

    def names_to_delete(self, group_id: str) -> list[str]:
        """Returns the topics of a group that are stored or may be, sorted."""
        return sorted({*self.of_group(group_id), *self._in_flight.get(group_id, ())})

    def replay(self, key: GroupTopicKey, value: GroupTopicValue | None) -> None:
        """Replays an acknowledged record. None deletes the topic."""
        topics = self._stored.get(key.group_id)
        if value is not None:
            if topics is None:
                topics = self._stored[key.group_id] = {}
            if key.topic not in topics:
                self._accounts.add(key.group_id, group_topic_bytes(key.topic))
            topics[key.topic] = value
        elif topics is not None and key.topic in topics:
            del topics[key.topic]
            self._accounts.add(key.group_id, -group_topic_bytes(key.topic))
            if not topics:
                del self._stored[key.group_id]

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each group's topics, counted one by one, for tests."""
        return {group_id: sum(map(group_topic_bytes, topics)) for group_id, topics in self._stored.items()}

    def begin(self, records: Iterable[GroupRecord]) -> None:
        """Notes that these records are being written."""
        for key, value in records:
            if isinstance(key, GroupTopicKey):
                assert value is None or isinstance(value, GroupTopicValue), value
                self._in_flight.setdefault(key.group_id, {}).setdefault(key.topic, []).append(value)

    def end(self, records: Iterable[GroupRecord]) -> None:
        """Notes that the write of these records is decided, whether it was appended or not."""
        for key, _ in records:
            if isinstance(key, GroupTopicKey):
                topics = self._in_flight[key.group_id]
                del topics[key.topic][0]
                if not topics[key.topic]:
                    del topics[key.topic]
                if not topics:
                    del self._in_flight[key.group_id]


def topic_tombstones(group_id: str, topics: GroupTopics) -> list[GroupRecord]:
    """Returns the records that delete all topics of a group."""
    return [GroupRecord(GroupTopicKey(group_id, name), None) for name in topics.names_to_delete(group_id)]
