"""Makes a classic group of a consumer group of which only members of the classic protocol remain (KIP-848).

    the generation           the group's epoch before its last member of the consumer protocol went
    a member's assignment    the partitions that it has, also those that it still has to revoke

The classic group begins a rebalance, because the partitions of the member that went have no owner. The stored group has
no leader until that rebalance has ended. So a coordinator that loads the group before begins the rebalance again.

Kafka stores the target assignments instead. If a member of the consumer protocol joined again before the rebalance has
ended, it could then get a partition that a cooperative member still has. (Kafka: ClassicGroup.fromConsumerGroup)
"""

from __future__ import annotations

from dataclasses import replace

from klamm_coordinator.classic.group import ClassicGroup
from klamm_coordinator.classic.member import ClassicMember
from klamm_coordinator.classic.messages import Protocol
from klamm_coordinator.classic.subscription import CONSUMER_PROTOCOL_TYPE, encode_assignment, read_subscription
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.kip848.departure import tombstones
from klamm_coordinator.kip848.group import ConsumerGroup
from klamm_coordinator.records.codec import SchemaError
from klamm_coordinator.records.consumer_group_schemas import ConsumerMemberMetadata
from klamm_coordinator.records.schemas import GroupMetadataKey, GroupRecord


def may_downgrade(before: ConsumerGroup, after: ConsumerGroup, settings: GroupSettings) -> bool:
    """Returns True if the last member of the consumer protocol has gone, and the group may become a classic group."""
    return (
        after.are_all_classic
        and not before.are_all_classic
        and settings.may_downgrade
        and len(after.members) <= settings.group_size_max
    )


def downgrade(before: ConsumerGroup, after: ConsumerGroup, wall_ms: int) -> ClassicGroup | None:
    """Returns the classic group with the members of `after`, or None if the metadata of a member does not parse."""
    group = ClassicGroup(after.group_id, state_timestamp_ms=wall_ms)
    try:
        for member_id, member in after.members.items():
            group.add(_member(after, member_id, member), CONSUMER_PROTOCOL_TYPE)
    except SchemaError:
        return None
    group.become_stable(generation_id=before.epoch)
    return group


def downgrade_records(before: ConsumerGroup, classic: ClassicGroup) -> tuple[GroupRecord, ...]:
    """Returns the records that replace the stored consumer group by the classic group."""
    assignments = {member_id: member.assignment for member_id, member in classic.members.items()}
    value = replace(classic.to_value(assignments), leader=None)
    return (*tombstones(before), GroupRecord(GroupMetadataKey(classic.group_id), value))


def _member(group: ConsumerGroup, member_id: str, member: ConsumerMemberMetadata) -> ClassicMember:
    assert member.classic is not None, member_id
    protocols = tuple(Protocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols)
    return ClassicMember(
        member_id=member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=protocols,
        assignment=encode_assignment(
            group.by_topic(group.current(member_id).owned), read_subscription(protocols[0].metadata).version
        ),
    )
