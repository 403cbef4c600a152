"""A consumer group of the new protocol (KIP-848), as its records describe it.

    epoch              grows when members, subscriptions or topics change
    assignment_epoch   the epoch that the target assignment was made for
    member epoch       the epoch that a member has reached; it fences the member's older commits

    Empty        no members
    Assigning    a target for the newest epoch is not made yet
    Reconciling  some member has not reached its target yet
    Stable       every member has reached its target

Invariants (`check_invariants`): no partition has two owners; static ids and members name each other; every member, and
only a member, has a current assignment; no member's epoch is above the assignment epoch, which is not above the group's
epoch. (Kafka: ConsumerGroup.java)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.groups.sizes import (
    GROUP_BYTES,
    PARTITION_BYTES,
    TOPIC_BYTES,
    consumer_member_bytes,
    current_bytes,
    regex_bytes,
    text_bytes,
    texts_bytes,
)
from klamm_coordinator.records.consumer_group_schemas import (
    NO_PARTITIONS,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberMetadata,
    Current,
    CurrentKey,
    GroupEpoch,
    GroupEpochKey,
    MemberKey,
    MemberState,
    PartitionMetadata,
    PartitionMetadataKey,
    Partitions,
    RegexKey,
    ResolvedRegex,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
    TopicIdPartition,
    TopicMetadata,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""The epoch of a static member that has left and will return before its session ends."""

UNJOINED = Current(
    member_epoch=JOIN_EPOCH,
    previous_member_epoch=JOIN_EPOCH,
    state=MemberState.STABLE,
    assigned=NO_PARTITIONS,
    pending_revocation=NO_PARTITIONS,
)
"""The current assignment of a member that has just joined: no partitions."""


class ConsumerGroup:
    """The stored state of a consumer group. Only `replay` changes it.

    While the group moves from one protocol to the other, some members use the classic protocol."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.topics: dict[str, TopicMetadata] = {}
        """The subscribed topics that exist, as they were at the last change of the epoch."""
        self.members: dict[str, ConsumerMemberMetadata] = {}
        self.targets: dict[str, Partitions] = {}
        self.currents: dict[str, Current] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        """The id of the member that owns a partition, also while that member still has to revoke it. Derived from
        `currents`."""
        self.static_members: dict[str, str] = {}
        """The ids of the static members, by group.instance.id. Derived from `members`."""
        self.size_bytes = GROUP_BYTES + text_bytes(group_id)
        """The memory that the group takes, in bytes, without its offsets."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerGroup) and self._stored() == other._stored()

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> ConsumerGroup:
        """Returns a copy. Changes of the copy do not change this group."""
        other = ConsumerGroup(self.group_id)
        other.epoch, other.assignment_epoch = self.epoch, self.assignment_epoch
        other.topics = self.topics
        other.members = self.members.copy()
        other.targets = self.targets.copy()
        other.currents = self.currents.copy()
        other.regexes = self.regexes.copy()
        other.owners = self.owners.copy()
        other.static_members = self.static_members.copy()
        other.size_bytes = self.size_bytes
        return other

    # Properties

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        """Kafka's name of the group's state, which tools show. Safe to read from another thread."""
        if self.is_empty:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        reconciled = all(self.is_reconciled(current) for current in list(self.currents.values()))
        return "Stable" if reconciled else "Reconciling"

    def is_reconciled(self, current: Current) -> bool:
        """Returns True if a member with the assignment `current` has reached its target."""
        return current.state is MemberState.STABLE and current.member_epoch == self.assignment_epoch

    @property
    def are_all_classic(self) -> bool:
        """True if the group has members and all of them use the classic protocol."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    def is_classic(self, member_id: str) -> bool:
        """Returns True if this is a member that uses the classic protocol."""
        member = self.members.get(member_id)
        return member is not None and member.classic is not None

    def current(self, member_id: str) -> Current:
        """Returns the member's current assignment, or `UNJOINED` for a member that just joined."""
        return self.currents.get(member_id, UNJOINED)

    def target(self, member_id: str) -> Partitions:
        """Returns the member's target assignment, which is empty if it has none."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def subscription(self, member: ConsumerMemberMetadata) -> frozenset[str]:
        """Returns the names of the topics that a member subscribes to, whether these exist or not."""
        resolved = self.regexes.get(member.subscribed_topic_regex or "")
        return frozenset(member.subscribed_topic_names).union(() if resolved is None else resolved.topics)

    def subscribed_topics(self) -> frozenset[str]:
        """Returns the names of the topics that any member subscribes to."""
        topics = {name for member in self.members.values() for name in member.subscribed_topic_names}
        for regex in self.subscribed_regexes():
            if regex in self.regexes:
                topics.update(self.regexes[regex].topics)
        return frozenset(topics)

    def subscribed_regexes(self) -> set[str]:
        """Returns the regular expressions with which members subscribe."""
        return {member.subscribed_topic_regex for member in self.members.values() if member.subscribed_topic_regex}

    def is_subscribed_to(self, topic: str) -> bool:
        """Returns True if a member subscribes to the topic, so that the topic's offsets may be in use."""
        return topic in self.subscribed_topics()

    def preferred_assignor(self, default: str) -> str:
        """Returns the assignor that most members ask for. On a tie, the first by name wins."""
        votes = Counter(member.server_assignor for member in self.members.values() if member.server_assignor)
        return min(votes, key=lambda name: (-votes[name], name), default=default)

    def by_topic(self, partitions: Partitions) -> dict[str, list[int]]:
        """Returns the partitions by the names of their topics, without topics that no longer exist."""
        names = {topic.topic_id: topic.name for topic in self.topics.values()}
        found: dict[str, list[int]] = {}
        for partition in sorted(partitions):
            if partition.topic_id in names:
                found.setdefault(names[partition.topic_id], []).append(partition.partition)
        return found

    def epoch_error(self, member_id: str, member_epoch: int) -> ErrorCode:
        """Returns NONE if the member is in the group at that epoch, otherwise the error."""
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.current(member_id).member_epoch == member_epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if self.is_classic(member_id) else ErrorCode.STALE_MEMBER_EPOCH

    def commit_error(self, member_id: str, member_epoch: int, partitions: Iterable[TopicPartition]) -> ErrorCode:
        """Returns NONE, or the reason why the member may not commit for these partitions at that epoch.

        A commit at the member's previous epoch is allowed for partitions that the member still has. The member sent it
        before it learnt of its new epoch. No other member has had these partitions since. A member that revokes a
        partition gets a new epoch before another member can get the partition. It gets one more epoch before the
        partition can come back. (KIP-1251 allows this and more.)"""
        error = self.epoch_error(member_id, member_epoch)
        if error not in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION):
            return error
        current = self.current(member_id)
        is_one_behind = JOIN_EPOCH < member_epoch == current.previous_member_epoch < current.member_epoch
        may_commit = is_one_behind and all(self._has(current, partition) for partition in partitions)
        return ErrorCode.NONE if may_commit else error

    def _has(self, current: Current, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and TopicIdPartition(topic.topic_id, partition.partition) in current.owned

    # Changes of the group

    def replay(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        """Applies one record of the group. A group is deleted when the record of its epoch is."""
        match key, value:
            case GroupEpochKey(), GroupEpoch(epoch):
                self.epoch = epoch
            case TargetEpochKey(), TargetEpoch(epoch):
                self.assignment_epoch = epoch
            case PartitionMetadataKey(), PartitionMetadata(topics):
                self.size_bytes -= texts_bytes(self.topics, TOPIC_BYTES)
                self.topics = {topic.name: topic for topic in topics}
                self.size_bytes += texts_bytes(self.topics, TOPIC_BYTES)
            case MemberKey(member_id=member_id), ConsumerMemberMetadata() | None as member:
                self._set_member(member_id, member)
            case CurrentKey(member_id=member_id), Current() | None as current:
                self._set_current(member_id, current)
            case TargetKey(member_id=member_id), Target(partitions):
                self.size_bytes += PARTITION_BYTES * (len(partitions) - len(self.target(member_id)))
                self.targets[member_id] = partitions
            case TargetKey(member_id=member_id), None:
                self.size_bytes -= PARTITION_BYTES * len(self.targets.pop(member_id, ()))
            case RegexKey(regex=regex), ResolvedRegex() as resolved:
                self.size_bytes += regex_bytes(regex, resolved) - regex_bytes(regex, self.regexes.get(regex))
                self.regexes[regex] = resolved
            case RegexKey(regex=regex), None:
                self.size_bytes -= regex_bytes(regex, self.regexes.pop(regex, None))
            case GroupEpochKey() | TargetEpochKey() | PartitionMetadataKey(), None:
                pass  # the group is being deleted
            case _:
                raise AssertionError(f"a key and value that do not belong together: {key} {value}")

    def check_invariants(self) -> None:
        """Asserts the invariants that the module's docstring lists."""
        owners: dict[TopicIdPartition, str] = {}
        for member_id, current in self.currents.items():
            assert not current.assigned & current.pending_revocation, (member_id, current)
            for partition in current.owned:
                assert partition not in owners, (partition, owners[partition], member_id)
                owners[partition] = member_id
            assert current.member_epoch <= self.assignment_epoch, (member_id, current, self.assignment_epoch)
        assert owners == self.owners, (owners, self.owners)
        assert self.currents.keys() == self.members.keys(), (list(self.currents), list(self.members))
        assert self.targets.keys() <= self.members.keys(), (list(self.targets), list(self.members))
        static = {
            member.instance_id: member_id
            for member_id, member in self.members.items()
            if member.instance_id is not None
        }
        assert static == self.static_members, (static, self.static_members)
        assert self.size_bytes == self.counted_bytes(), (self.size_bytes, self.counted_bytes())
        assert self.assignment_epoch <= self.epoch, (self.assignment_epoch, self.epoch)
        targeted = [partition for target in self.targets.values() for partition in target]
        assert len(targeted) == len(set(targeted)), "two members are to have a partition"

    def counted_bytes(self) -> int:
        """Returns `size_bytes`, counted part by part, for tests."""
        return (
            GROUP_BYTES
            + text_bytes(self.group_id)
            + texts_bytes(self.topics, TOPIC_BYTES)
            + sum(_member_bytes(member_id, member) for member_id, member in self.members.items())
            + sum(PARTITION_BYTES * len(target) for target in self.targets.values())
            + sum(map(current_bytes, self.currents.values()))
            + sum(regex_bytes(regex, resolved) for regex, resolved in self.regexes.items())
        )

    def _stored(self) -> tuple[object, ...]:
        return (
            *(self.group_id, self.epoch, self.assignment_epoch, self.topics),
            *(self.members, self.targets, self.currents, self.regexes),
        )

    def _set_member(self, member_id: str, member: ConsumerMemberMetadata | None) -> None:
        former = self.members.pop(member_id, None)
        self.size_bytes -= _member_bytes(member_id, former)
        instance_id = None if former is None else former.instance_id
        # A successor may have taken the instance already.
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if member is not None:
            self.size_bytes += _member_bytes(member_id, member)
            self.members[member_id] = member
            if member.instance_id is not None:
                self.static_members[member.instance_id] = member_id

    def _set_current(self, member_id: str, current: Current | None) -> None:
        """Sets a member's current assignment. In a log that is being compacted, the next owner's record may come before
        the record that revokes the partition. The later record counts."""
        former = self.currents.pop(member_id, None)
        self.size_bytes += current_bytes(current) - current_bytes(former)
        self._disown(member_id, () if former is None else former.owned)
        if current is not None:
            self.currents[member_id] = current
            self.owners.update(dict.fromkeys(current.owned, member_id))

    def _disown(self, member_id: str, partitions: Iterable[TopicIdPartition]) -> None:
        for partition in partitions:
            if self.owners.get(partition) == member_id:
                del self.owners[partition]


def _member_bytes(member_id: str, member: ConsumerMemberMetadata | None) -> int:
    return 0 if member is None else text_bytes(member_id) + consumer_member_bytes(member)
