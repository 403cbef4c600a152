"""Makes a consumer group of a classic group with members, when a member of the consumer protocol joins (KIP-848).

    the group's epoch        its generation, and one more because a member joins
    a member's epoch         the generation, so that commits of that generation stay valid
    a member's assignment    the partitions that it may have; both its current and its target assignment

The members learn from their next heartbeat that they have to join again. (Kafka: ConsumerGroup.fromClassicGroup)
"""

from __future__ import annotations

from itertools import chain

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.member import ClassicMember
from klamm_coordinator.classic.subscription import Assignment, Subscription, read_assignment, read_subscription
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.groups.topics import Topics
from klamm_coordinator.kip848.change import GroupChange
from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.records.consumer_group_schemas import (
    NO_PARTITIONS,
    ClassicSettings,
    ConsumerMemberMetadata,
    Current,
    CurrentKey,
    GroupEpoch,
    GroupEpochKey,
    MemberKey,
    MemberState,
    Partitions,
    SupportedProtocol,
    Target,
    TargetEpoch,
    TargetEpochKey,
    TargetKey,
    TopicIdPartition,
)


def check_upgrade(classic: ClassicGroup, settings: GroupSettings) -> None:
    """Raises GroupIdNotFoundError unless the classic group may become a consumer group."""
    if not settings.may_upgrade:
        raise _refused(classic, "the online upgrade is disabled (group.consumer.migration.policy)")
    if not classic.uses_consumer_protocol:
        raise _refused(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > settings.consumer_size_max:
        raise _refused(
            classic,
            f"it has {len(classic.members)} members, expected at most {settings.consumer_size_max}"
            " (group.consumer.max.size)",
        )


def upgrade(change: GroupChange, classic: ClassicGroup, topics: Topics) -> None:
    """Adds the records that make the classic group a consumer group with the same members. The caller must write the
    tombstone of the classic group first.

    Raises GroupIdNotFoundError, and adds nothing, if the metadata or assignment of a member does not parse."""
    group_id, generation_id = classic.group_id, classic.generation_id
    members = {member_id: _member(classic, member) for member_id, member in classic.members.items()}
    assigned = _assigned(classic, topics)
    for member_id, member in members.items():
        change.write(MemberKey(group_id, member_id), member)
    change.write(GroupEpochKey(group_id), GroupEpoch(generation_id))
    for member_id, partitions in assigned.items():
        change.write(TargetKey(group_id, member_id), Target(partitions))
    change.write(TargetEpochKey(group_id), TargetEpoch(generation_id))
    for member_id, partitions in assigned.items():
        current = Current(
            member_epoch=generation_id,
            previous_member_epoch=generation_id,
            state=MemberState.STABLE,
            assigned=partitions,
            pending_revocation=NO_PARTITIONS,
        )
        change.write(CurrentKey(group_id, member_id), current)
    change.bump_epoch()


def _member(classic: ClassicGroup, member: ClassicMember) -> ConsumerMemberMetadata:
    subscription = _subscription(classic, member)
    return ConsumerMemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicSettings(
            member.session_timeout_ms,
            tuple(SupportedProtocol(protocol.name, protocol.metadata) for protocol in member.protocols),
        ),
    )


def _subscription(classic: ClassicGroup, member: ClassicMember) -> Subscription:
    # In its first join phase, a group has not chosen a protocol yet.
    name = classic.protocol_name or member.protocols[0].name
    supported = (protocol.metadata for protocol in member.protocols if protocol.name == name)
    try:
        # A member that has just joined may not support the protocol of the last generation.
        return read_subscription(next(supported, member.protocols[0].metadata))
    except SchemaError as error:
        raise _malformed(classic) from error


def _assigned(classic: ClassicGroup, topics: Topics) -> dict[str, Partitions]:
    """Returns the partitions that each member may have, without topics that no longer exist.

    These are its last assignment, and the partitions that it reported as its own in its last JoinGroup. In the middle
    of a rebalance, a cooperative member has partitions without an assignment. A leader may have assigned a partition to
    several members. Then only the first one keeps it."""
    taken: set[TopicIdPartition] = set()
    assigned: dict[str, Partitions] = dict.fromkeys(classic.members, NO_PARTITIONS)
    # The claims are made one by one, because together they may take much more memory than the metadata.
    by_leader = ((member_id, _assignment(classic, member).partitions) for member_id, member in classic.members.items())
    by_members = ((member_id, _subscription(classic, member).owned) for member_id, member in classic.members.items())
    for member_id, claimed in chain(by_leader, by_members):
        partitions = topic_id_partitions(claimed, topics) - taken
        taken |= partitions
        assigned[member_id] |= partitions
    return assigned


def _assignment(classic: ClassicGroup, member: ClassicMember) -> Assignment:
    try:
        assignment = read_assignment(member.assignment)
    except SchemaError as error:
        raise _malformed(classic) from error
    if assignment.has_user_data:
        raise _refused(
            classic,
            "an unsupported custom assignor is in use, whose user data would be lost. Switch to a default assignor",
        )
    return assignment


def topic_id_partitions(partitions: frozenset[TopicPartition], topics: Topics) -> Partitions:
    """Returns the partitions by the ids of their topics, without topics that do not exist."""
    found = ((topics.get(partition.topic), partition.partition) for partition in partitions)
    return frozenset(TopicIdPartition(info.topic_id, number) for info, number in found if info is not None)


def _malformed(classic: ClassicGroup) -> BrokerError:
    return _refused(classic, "the embedded consumer protocol is malformed")


def _refused(classic: ClassicGroup, reason: str) -> BrokerError:
    return ErrorCode.GROUP_ID_NOT_FOUND.exception(
        f"cannot upgrade classic group {classic.group_id!r} to consumer group: {reason}"
    )
