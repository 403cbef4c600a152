"""Decodes the groups of both protocols that coordinators describe."""

from __future__ import annotations

from klamm.admin.types.groups import GroupDescription, GroupListing, MemberDescription
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
        members=tuple(_member(each) for each in message.members),
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
        members=tuple(_consumer_member(each) for each in message.members),
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
    )


def _partitions_of(assignment: coordinator_pb2.ConsumerAssignment) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.topic, number) for one in assignment.topics for number in one.partitions)
