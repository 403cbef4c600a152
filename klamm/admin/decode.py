"""From the contracts' answers to the Admin's values."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from klamm.admin.types import (
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    CreatedTopic,
    DamagedSegment,
    DamageState,
    GroupDescription,
    LogDirDescription,
    MemberDescription,
    PartitionDescription,
    PartitionReassignment,
    QuorumDescription,
    QuorumReplicaKind,
    ReplicaDescription,
    ReplicaOfQuorum,
    ScrubDescription,
    ServerDescription,
    TopicDescription,
)
from klamm.consumer.consumer_protocol import ConsumerProtocolError, decode_assignment, decode_subscription
from klamm.model import TopicPartition
from klamm.wire.v1 import broker_pb2, common_pb2, controller_pb2, coordinator_pb2


def created_topic(message: controller_pb2.CreatedTopic) -> CreatedTopic:
    return CreatedTopic(
        name=message.name,
        topic_id=_uuid(message.topic_id),
        partition_count=message.partition_count,
        replication_factor=message.replication_factor,
    )


def topic_description(message: controller_pb2.DescribedTopic) -> TopicDescription:
    return TopicDescription(
        name=message.name,
        topic_id=_uuid(message.topic_id),
        internal=message.internal,
        partitions=tuple(
            PartitionDescription(
                partition=each.partition,
                leader=each.leader,
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
                replicas=tuple(each.replicas),
                isr=tuple(each.isr),
                elr=tuple(each.elr),
                last_known_elr=tuple(each.last_known_elr),
                adding_replicas=tuple(each.adding_replicas),
                removing_replicas=tuple(each.removing_replicas),
                offline_replicas=tuple(each.offline_replicas),
                resigned_replicas=tuple(each.resigned_replicas),
                min_isr=each.min_isr,
            )
            for each in message.partitions
        ),
    )


def partition_reassignment(message: controller_pb2.OngoingReassignment) -> PartitionReassignment:
    return PartitionReassignment(
        replicas=tuple(message.replicas),
        adding_replicas=tuple(message.adding_replicas),
        removing_replicas=tuple(message.removing_replicas),
        isr=tuple(message.isr),
    )


def config_entry(message: controller_pb2.DescribedConfig) -> ConfigEntry:
    return ConfigEntry(
        name=message.name,
        value=message.value,
        source=ConfigSource(message.source),
        default_value=message.default_value,
        read_only=message.read_only,
        sensitive=message.sensitive,
        type=message.type,
        documentation=message.documentation,
    )


def cluster_description(message: controller_pb2.DescribeClusterResponse) -> ClusterDescription:
    return ClusterDescription(
        cluster_id=message.cluster_id,
        controller_id=message.controller_id,
        controllers=_servers(message.controllers),
        brokers=_servers(message.brokers),
        coordinators=_servers(message.coordinators),
        metadata_end_index=message.metadata_end_index,
    )


def quorum_description(message: controller_pb2.DescribeQuorumResponse) -> QuorumDescription:
    return QuorumDescription(
        leader_id=message.leader_id,
        term=message.term,
        high_watermark=message.high_watermark,
        replicas=tuple(
            ReplicaOfQuorum(
                node_id=each.node_id,
                host=each.endpoint.host,
                port=each.endpoint.port,
                is_voter=each.is_voter,
                end_index=each.end_index,
                lag=each.lag,
                silent_ms=each.silent_ms,
                kind=QuorumReplicaKind(each.kind),
                directory_id=each.directory_id,
            )
            for each in message.replicas
        ),
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
    )


def _partitions_of(assignment: coordinator_pb2.ConsumerAssignment) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.topic, number) for one in assignment.topics for number in one.partitions)


def log_dir(message: broker_pb2.DescribedLogDir) -> LogDirDescription:
    return LogDirDescription(
        path=message.path,
        online=not message.error_code,
        total_bytes=message.total_bytes,
        usable_bytes=message.usable_bytes,
        replicas=tuple(
            ReplicaDescription(
                tp=TopicPartition(each.topic, each.partition),
                size_bytes=each.size_bytes,
                log_start_offset=each.log_start_offset,
                log_end_offset=each.log_end_offset,
                is_future=each.is_future,
                offset_lag=each.offset_lag,
            )
            for each in message.replicas
        ),
    )


def scrub(message: broker_pb2.DescribedScrub) -> ScrubDescription:
    return ScrubDescription(
        tp=TopicPartition(message.topic, message.partition),
        asked=message.asked,
        running=message.running,
        next_offset=message.next_offset,
        end_offset=message.end_offset,
        finished_ms=message.finished_ms,
        damages=tuple(
            DamagedSegment(
                path=each.path,
                found_ms=each.found_ms,
                state=_DAMAGE_STATES.get(each.state, DamageState.UNREPAIRED),
                text=each.text,
                lines=tuple(each.lines),
            )
            for each in message.damages
        ),
    )


_DAMAGE_STATES = {
    broker_pb2.DAMAGE_STATE_REPAIRED: DamageState.REPAIRED,
    broker_pb2.DAMAGE_STATE_DISMISSED: DamageState.DISMISSED,
}


def _member(message: coordinator_pb2.DescribedMember) -> MemberDescription:
    """A member may speak a protocol of its own: then its topics and partitions are not ours to read."""
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


def _servers(nodes: Iterable[common_pb2.Node]) -> tuple[ServerDescription, ...]:
    return tuple(
        ServerDescription(
            node_id=each.node_id,
            host=each.endpoint.host,
            port=each.endpoint.port,
            rack=each.rack,
            fenced=each.fenced,
            in_controlled_shutdown=each.in_controlled_shutdown,
            kafka_host=each.kafka_endpoint.host,
            kafka_port=each.kafka_endpoint.port,
        )
        for each in nodes
    )


def _uuid(data: bytes) -> uuid.UUID:
    """Nothing has an id with validate_only."""
    return uuid.UUID(bytes=data) if data else uuid.UUID(int=0)
