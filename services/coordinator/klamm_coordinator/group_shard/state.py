"""The durable state of a shard of groups: the state that its acknowledged records describe.

Only acknowledged records and markers change it, both live and when the shard is loaded. So a shard that moves to
another coordinator has the same state there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm_coordinator.groups.sizes import stored_group_bytes
from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.offsets.group_topics import GroupTopics
from klamm_coordinator.offsets.lost_records import LostRecords
from klamm_coordinator.offsets.released_holds import ReleasedHolds
from klamm_coordinator.offsets.store import ShardOffsets
from klamm_coordinator.records.consumer_group_schemas import ConsumerGroupKey, ConsumerGroupValue, GroupEpochKey
from klamm_coordinator.records.group_topic_schema import GroupTopicKey, GroupTopicValue
from klamm_coordinator.records.lost_records_schema import LostRecordsKey, LostRecordsValue
from klamm_coordinator.records.released_hold_schema import ReleasedHoldKey, ReleasedHoldValue
from klamm_coordinator.records.schemas import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from klamm_coordinator.runtime.accounts import Accounts
from klamm_server.runtime.byte_shares import unbounded


class GroupShardState:
    """The groups of both protocols as last stored, and their offsets."""

    def __init__(self, accounts: Accounts | None = None) -> None:
        """`accounts` count the memory of the groups. A state that no shard serves needs no accounts."""
        self._accounts = Accounts(unbounded()) if accounts is None else accounts
        self.groups: dict[str, GroupMetadataValue] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        """The groups of the new protocol (KIP-848)."""
        self.offsets = ShardOffsets(self._accounts)
        self.topics = GroupTopics(self._accounts)
        """The partitions that topics had when the groups began to read them."""
        self.lost = LostRecords(self._accounts)
        self.released = ReleasedHolds()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, GroupShardState)
            and self.groups == other.groups
            and self.consumer_groups == other.consumer_groups
            and self.offsets == other.offsets
            and self.topics == other.topics
            and self.lost == other.lost
            and self.released == other.released
        )

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, group_id: str) -> bool:
        """Returns True if the group has a stored record or an offset."""
        return group_id in self.groups or group_id in self.consumer_groups or group_id in self.offsets.group_ids()

    def replay(self, record: GroupRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies one acknowledged record. With a producer id, the record is part of that producer's transaction."""
        match record:
            case GroupRecord(OffsetCommitKey(group_id, topic, partition), OffsetCommitValue() as value) if (
                producer_id >= 0
            ):
                self.offsets.pending.add(producer_id, group_id, TopicPartition(topic, partition), value)
            case GroupRecord(OffsetCommitKey(group_id, topic, partition), OffsetCommitValue() | None as value):
                self.offsets.replay(group_id, TopicPartition(topic, partition), value)
            case GroupRecord(GroupMetadataKey(group_id), GroupMetadataValue() as group):
                former = self.groups.get(group_id)
                self.groups[group_id] = group
                self._accounts.add(group_id, stored_group_bytes(group) - stored_group_bytes(former))
            case GroupRecord(GroupMetadataKey(group_id), None):
                self._accounts.add(group_id, -stored_group_bytes(self.groups.pop(group_id, None)))
            case GroupRecord(GroupTopicKey() as topic_key, GroupTopicValue() | None as topic_value):
                self.topics.replay(topic_key, topic_value)
            case GroupRecord(LostRecordsKey() as lost_key, LostRecordsValue() | None as lost_value):
                self.lost.replay(lost_key, lost_value)
            case GroupRecord(ReleasedHoldKey() as hold_key, ReleasedHoldValue() | None as hold_value):
                self.released.replay(hold_key, hold_value)
            case GroupRecord(GroupEpochKey(group_id), None):
                gone = self.consumer_groups.pop(group_id, None)
                self._accounts.add(group_id, 0 if gone is None else -gone.size_bytes)
            case GroupRecord(key, value) if isinstance(key, ConsumerGroupKey):
                assert not isinstance(
                    value,
                    OffsetCommitValue | GroupMetadataValue | GroupTopicValue | LostRecordsValue | ReleasedHoldValue,
                ), record
                self._replay_consumer_group(key, value)
            case _:
                raise AssertionError(f"a key and value that do not belong together: {record}")

    def end_transaction(self, producer_id: int, *, committed: bool) -> set[str]:
        """Applies one acknowledged marker. Returns the ids of the groups that had pending offsets of the
        transaction."""
        return self.offsets.end_transaction(producer_id, committed=committed)

    def group_ids(self) -> Iterable[str]:
        """Returns the ids of all groups that have a stored record or an offset, sorted."""
        return sorted({*self.groups, *self.consumer_groups, *self.offsets.group_ids()})

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each group's stored records and offsets, counted one by one, for tests."""
        sizes = Counter(self.offsets.sizes())
        sizes.update(self.topics.sizes())
        sizes.update(self.lost.sizes())
        sizes.update({group_id: stored_group_bytes(group) for group_id, group in self.groups.items()})
        sizes.update({group_id: group.counted_bytes() for group_id, group in self.consumer_groups.items()})
        return sizes

    def _replay_consumer_group(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        """Applies a record of a consumer group. Any record except a tombstone creates the group if it does not exist,
        because a compacted log may begin with any of them."""
        group = self.consumer_groups.get(key.group_id)
        counted_bytes = 0 if group is None else group.size_bytes
        if group is None:
            if value is None:
                return
            group = self.consumer_groups[key.group_id] = ConsumerGroup(key.group_id)
        group.replay(key, value)
        self._accounts.add(key.group_id, group.size_bytes - counted_bytes)
