"""Decodes the groups of both protocols that coordinators describe."""

from __future__ import annotations

from typing import Any, Final

from klamm.admin.types.groups import (
    GroupDescription,
    GroupLagDescription,
    GroupListing,
    MemberDescription,
    PartitionLagDescription,
)
from klamm.consumer.assignors.consumer_protocol import ConsumerProtocolError, decode_assignment, decode_subscription
from klamm.model import TopicPartition
from klamm.wire.v1 import coordinator_pb2


def group_listing(message: coordinator_pb2.ListedGroup) -> GroupListing:
    return GroupListing(
        group_id=message.group_id, protocol_type=message.protocol_type, state=message.state, type=message.type
    )


def group_description(message: coordinator_pb2.DescribedGroup) -> GroupDescription:
    return GroupDescription(
        group_id=message.group_id,
        state=message.state,
        protocol_type=message.protocol_type,
        assignor=message.protocol_name,
        generation_id=message.generation_id,
        leader=message.leader,
        coordinator_id=message.coordinator_id,
        members=tuple(_member(member) for member in message.members),
    )


def _member(message: coordinator_pb2.DescribedMember) -> MemberDescription:
    """Returns a member's description. If the member does not use the consumer protocol, its topics and partitions stay
    empty."""
    try:
        topics = decode_subscription(message.metadata).topics if message.metadata else ()
        assignment = decode_assignment(message.assignment).partitions
    except ConsumerProtocolError:
        topics, assignment = (), ()
    return MemberDescription(
        member_id=message.member_id,
        group_instance_id=message.group_instance_id or None,
        client_id=message.client_id,
        client_host=message.client_host,
        topics=topics,
        assignment=assignment,
        rebalance_timeout_ms=message.rebalance_timeout_ms or None,
    )


def consumer_group_description(message: coordinator_pb2.DescribedConsumerGroup) -> GroupDescription:
    return GroupDescription(
        group_id=message.group_id,
        state=message.state,
        protocol_type="consumer",
        assignor=message.assignor,
        generation_id=-1,
        leader="",
        coordinator_id=message.coordinator_id,
        members=tuple(_consumer_member(member) for member in message.members),
        type="consumer",
        group_epoch=message.group_epoch,
        assignment_epoch=message.assignment_epoch,
    )


def _consumer_member(message: coordinator_pb2.DescribedConsumerMember) -> MemberDescription:
    return MemberDescription(
        member_id=message.member_id,
        group_instance_id=message.group_instance_id or None,
        client_id=message.client_id,
        client_host=message.client_host,
        topics=tuple(message.subscribed_topic_names),
        assignment=_partitions_of(message.assignment),
        epoch=message.member_epoch,
        pattern=message.subscribed_topic_regex,
        target=_partitions_of(message.target_assignment),
        type="classic" if message.uses_classic_protocol else "consumer",
        rebalance_timeout_ms=message.rebalance_timeout_ms or None,
    )


def _partitions_of(assignment: coordinator_pb2.ConsumerAssignment) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, number) for topic in assignment.topics for number in topic.partitions)


_KNOWN_OR_NONE: Final = (
    "committed_offset",
    "committed_ms",
    "unchanged_since_ms",
    "log_start_offset",
    "high_watermark",
    "last_stable_offset",
    "lag",
    "behind_ms",
    "next_deletion_ms",
    "catch_up_ms",
    "commit_interval_ms",
    "consumed_per_s",
    "consumed_before_per_s",
    "produced_per_s",
    "produced_before_per_s",
    "held_by_producer_id",
    "held_since_ms",
)
"""The optional fields of a PartitionLag, which its description has under the same names."""


def group_lag(message: coordinator_pb2.GroupLag) -> GroupLagDescription:
    return GroupLagDescription(
        group_id=message.group_id,
        time_ms=message.time_ms,
        partitions=tuple(_partition_lag(partition) for partition in message.partitions),
        rebalances_per_hour=message.rebalances_per_hour if message.HasField("rebalances_per_hour") else None,
    )


def _partition_lag(message: coordinator_pb2.PartitionLag) -> PartitionLagDescription:
    known: dict[str, Any] = {name: getattr(message, name) for name in _KNOWN_OR_NONE if message.HasField(name)}
    return PartitionLagDescription(
        tp=TopicPartition(message.topic, message.partition),
        error=message.error_message if message.error_code else "",
        lost_count=message.lost_count,
        **known,
    )
