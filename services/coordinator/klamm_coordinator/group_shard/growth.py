"""Notes which partitions are younger than the groups that read their topics, and answers where a group begins there.

`auto.offset.reset=latest` means "from now on" for a partition that existed before the group. In a partition that was
created later, it would skip the records that were written before a member found the partition (KIP-1327). A group
begins there with the first record.

The shard stores a record for each group and topic, with the partitions that the topic had when the group began to read
it: when a member subscribed, or offsets were committed. A topic that was created after one of the members had joined
has none. The record goes when the group neither reads the topic nor has offsets in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klamm.model import TopicPartition
from klamm.setting import INT_MAX
from klamm_coordinator.classic.groups import ClassicGroups
from klamm_coordinator.group_shard.state import GroupShardState
from klamm_coordinator.groups.group_context import GroupContext, NoteFailure
from klamm_coordinator.groups.settings import EARLIEST, GroupSettings
from klamm_coordinator.groups.topics import Topics
from klamm_coordinator.offsets.group_topics import topic_tombstones
from klamm_coordinator.offsets.messages import FetchedOffset
from klamm_coordinator.records.consumer_group_schemas import MemberKey, PartitionMetadataKey, RegexKey
from klamm_coordinator.records.group_topic_schema import NO_TOPIC_ID, GroupTopicKey, GroupTopicValue
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupRecord, OffsetCommitKey, OffsetCommitValue

RECORDS_PER_WRITE: Final = 1_000
"""The most records of one write, so that each batch fits into `max.message.bytes`."""
_SUBSCRIBES = (GroupMetadataKey, MemberKey, PartitionMetadataKey, RegexKey)
"""The keys of records that may change what a group subscribes to."""


class _Readers(NamedTuple):
    """The members of a group and the topics to which they subscribe."""

    members: Collection[str]
    topics: Collection[str]


class Growth:
    """Keeps the records about the topics of groups. `topics` returns the topics that this coordinator knows now."""

    def __init__(
        self,
        state: GroupShardState,
        classic: ClassicGroups,
        settings: GroupSettings,
        topics: Callable[[], Topics],
    ) -> None:
        self._state = state
        self._classic = classic
        self._topics = topics
        self._is_on = settings.new_partition_offset_reset == EARLIEST
        self._joined: dict[str, dict[str, int]] = {}
        """The version of the topics when each member joined, by group and member id."""
        self._changed: dict[str, set[str]] = {}
        """The groups whose topics may have changed since `update`, each with the topics that lost an offset."""

    # Answers

    def fetch(self, group_id: str, partitions: Sequence[TopicPartition] | None) -> list[FetchedOffset]:
        """Returns the durable offsets of `partitions`, in order, or all of the group if it is None. Partitions without
        an offset are new if they are younger than the group. All of the group include the new ones."""
        stored = self._state.offsets.of_group(group_id)
        known = self._known_counts(group_id)
        if partitions is None:
            partitions = sorted({*stored, *self._younger(known)})
        return [
            _fetched(partition, value)
            if (value := stored.get(partition)) is not None
            else FetchedOffset(
                partition=partition, is_new=partition.partition >= known.get(partition.topic, INT_MAX + 1)
            )
            for partition in partitions
        ]

    def topics_of(self, group_id: str) -> Collection[str]:
        """Returns the topics to which the members of a group subscribe."""
        return self._readers(group_id).topics

    def _known_counts(self, group_id: str) -> dict[str, int]:
        """Returns how many partitions of each topic are older than the group."""
        if not self._is_on:
            return {}
        topics = self._topics()
        found = self._state.topics.newest_of_group(group_id).items()
        return {
            name: value.known_count(None if (info := topics.get(name)) is None else info.topic_id)
            for name, value in found
        }

    def _younger(self, known: Mapping[str, int]) -> Iterator[TopicPartition]:
        topics = self._topics()
        for name, count in known.items():
            info = topics.get(name)
            if info is not None:
                for number in range(count, info.partition_count):
                    yield TopicPartition(name, number)

    # Records

    def start(self, context: GroupContext) -> None:
        """Notes the members of all groups after the shard was loaded, and deletes what groups left that are gone."""
        for group_id in self._state.group_ids():
            self._note_members(group_id, self._readers(group_id).members)
        for group_id in sorted(set(self._state.topics.group_ids()) - set(self._state.group_ids())):
            self._append(topic_tombstones(group_id, self._state.topics), context)

    def heed(self, record: GroupRecord) -> None:
        """Notes a record that was replayed, if a group may read other topics after it."""
        if not self._is_on:
            return
        key, value = record
        if isinstance(key, OffsetCommitKey):
            if value is None:
                self._changed.setdefault(key.group_id, set()).add(key.topic)
            elif not self._state.topics.has(key.group_id, key.topic):
                self._changed.setdefault(key.group_id, set())
        elif isinstance(key, _SUBSCRIBES):
            self._changed.setdefault(key.group_id, set())

    def heed_commits(self, group_id: str) -> None:
        """Notes that a transaction with offsets of the group has ended."""
        if self._is_on:
            self._changed.setdefault(group_id, set())

    def update(self, context: GroupContext) -> None:
        """Appends the records that are missing, and deletes those of topics that the groups do not read any more."""
        changed, self._changed = self._changed, {}
        for group_id, without_offset in changed.items():
            if group_id in self._state:
                self._update(group_id, without_offset, context)
            else:
                self._joined.pop(group_id, None)
                self._append(topic_tombstones(group_id, self._state.topics), context)

    def _update(self, group_id: str, without_offset: Collection[str], context: GroupContext) -> None:
        stored = self._state.topics
        readers = self._readers(group_id)
        wanted = {*readers.topics, *(partition.topic for partition in self._state.offsets.of_group(group_id))}
        records = [
            GroupRecord(GroupTopicKey(group_id, name), self._as_of_now(group_id, name, readers))
            for name in sorted(wanted)
            if not stored.has(group_id, name)
        ]
        # An empty group may get its members again. The shard then deletes the topics whose last offsets are deleted.
        records += [
            GroupRecord(GroupTopicKey(group_id, name), None)
            for name in (stored.of_group(group_id) if readers.members else sorted(without_offset))
            if name not in wanted and name in stored.of_group(group_id) and not stored.is_in_flight(group_id, name)
        ]
        self._note_members(group_id, readers.members)
        self._append(records, context)

    def _append(self, records: list[GroupRecord], context: GroupContext) -> None:
        for start in range(0, len(records), RECORDS_PER_WRITE):
            part = tuple(records[start : start + RECORDS_PER_WRITE])
            context.append(part, then=NoteFailure(what=f"{len(part)} topics of group {part[0].key.group_id}"))

    def _as_of_now(self, group_id: str, name: str, readers: _Readers) -> GroupTopicValue:
        topics = self._topics()
        info = topics.get(name)
        if info is None:
            return GroupTopicValue(NO_TOPIC_ID, 0)
        joined = self._joined.get(group_id, {})
        if any(topics.is_newer(name, version) for member, version in joined.items() if member in readers.members):
            return GroupTopicValue(info.topic_id, 0)
        group = self._state.consumer_groups.get(group_id)
        planned = None if group is None else group.topics.get(name)
        if planned is not None and planned.topic_id == info.topic_id:
            return GroupTopicValue(info.topic_id, planned.partition_count)
        return GroupTopicValue(info.topic_id, info.partition_count)

    def _note_members(self, group_id: str, members: Collection[str]) -> None:
        former = self._joined.pop(group_id, {})
        if members:
            now = self._topics().version
            self._joined[group_id] = {member: former.get(member, now) for member in members}

    def _readers(self, group_id: str) -> _Readers:
        consumer_group = self._state.consumer_groups.get(group_id)
        if consumer_group is not None:
            return _Readers(consumer_group.members, consumer_group.subscribed_topics())
        group = self._classic.groups.get(group_id)
        if group is None:
            return _Readers((), ())
        return _Readers(group.members, group.subscribed_topics or ())


def _fetched(partition: TopicPartition, value: OffsetCommitValue) -> FetchedOffset:
    return FetchedOffset(
        partition=partition,
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
