"""Changes the in-sync sets of partitions for their leaders (AlterPartition: KIP-497, 841, 903), and marks replicas
offline whose brokers lost them.

A leader's change is applied only if the leader knows the partition's current state (partition epoch) and still leads
(leader epoch). The change names each member with the broker epoch under which that member fetched. A broker that is
fenced, shuts down or has registered again since may not join.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrChange,
    IsrMember,
    OfflineReplicas,
    ReportOfflineReplicasRequest,
    ReportOfflineReplicasResponse,
)
from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.electorate import Electorate
from klamm_controller.metadata.partition_change import partition_change
from klamm_controller.metadata.registered import registered_broker
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT
from klamm_server.metadata.entities import PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import changed_partition


def alter_partition_parts(request: AlterPartitionRequest) -> list[AlterPartitionRequest]:
    """Splits a big request into several, so that the queue handles each in a separate turn. Returns a small request as
    it is."""
    starts = range(0, len(request.partitions), CHANGES_PER_EVENT)
    if len(starts) < 2:
        return [request]
    return [
        AlterPartitionRequest(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            partitions=request.partitions[start : start + CHANGES_PER_EVENT],
        )
        for start in starts
    ]


def joined_answers(parts: Sequence[AlterPartitionResponse]) -> AlterPartitionResponse:
    """Joins the responses to the parts of one request. If a part failed as a whole, returns its error for the whole
    request, because the sender's registration has ended."""
    failed = next((part for part in parts if part.error_code), None)
    if failed is not None:
        return failed
    return AlterPartitionResponse(partitions=[answer for part in parts for answer in part.partitions])


def offline_replicas_parts(request: ReportOfflineReplicasRequest) -> list[ReportOfflineReplicasRequest]:
    """Splits a big request into several, like `alter_partition_parts`."""
    pieces = [
        OfflineReplicas(topic_id=topic.topic_id, partitions=topic.partitions[start : start + CHANGES_PER_EVENT])
        for topic in request.topics
        for start in range(0, len(topic.partitions), CHANGES_PER_EVENT)
    ]
    parts = [ReportOfflineReplicasRequest(broker_id=request.broker_id, broker_epoch=request.broker_epoch)]
    room = CHANGES_PER_EVENT
    for piece in pieces:
        if room < len(piece.partitions):
            parts.append(ReportOfflineReplicasRequest(broker_id=request.broker_id, broker_epoch=request.broker_epoch))
            room = CHANGES_PER_EVENT
        parts[-1].topics.append(piece)
        room -= len(piece.partitions)
    return parts


def handle_alter_partition(request: AlterPartitionRequest, image: MetadataImage) -> Decision[AlterPartitionResponse]:
    """Changes in-sync sets. Each partition's change succeeds or fails by itself. The answers have each partition's
    state after the change."""
    try:
        registered_broker(image, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        return Decision(reply=AlterPartitionResponse(error_code=refusal.code, error_message=refusal.message))
    electorate = Electorate(image)
    seen: set[tuple[bytes, int]] = set()
    records: list[MetadataRecord] = []
    answers = []
    for change in request.partitions:
        answer = AlteredPartition(topic_id=change.topic_id, partition=change.partition)
        try:
            if (change.topic_id, change.partition) in seen:
                raise Refusal(ErrorCode.INVALID_REQUEST, "the partition is named twice")
            seen.add((change.topic_id, change.partition))
            topic, partition = _led_partition(change, request.broker_id, image)
            _check_isr(change.new_isr, request.broker_id, partition, image)
            record = partition_change(
                topic,
                partition,
                electorate,
                isr=tuple(member.broker_id for member in change.new_isr),
                min_isr=change.min_isr or None,
            )
            if record is not None:
                partition = changed_partition(partition, record.partition_change)
                records.append(record)
            _answer(answer, partition, request.broker_id)
        except Refusal as refusal:
            answer.error_code, answer.error_message = refusal.code, refusal.message
        answers.append(answer)
    return Decision(records=tuple(records), reply=AlterPartitionResponse(partitions=answers))


def handle_report_offline_replicas(
    request: ReportOfflineReplicasRequest, image: MetadataImage
) -> Decision[ReportOfflineReplicasResponse]:
    """Marks a broker's replicas as offline until the broker registers again. Ignores replicas that the broker does not
    host."""
    try:
        broker = registered_broker(image, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        return Decision(reply=ReportOfflineReplicasResponse(error_code=refusal.code, error_message=refusal.message))
    electorate = Electorate(image)
    records = []
    for reported in request.topics:
        topic = _topic(reported.topic_id, image)
        for number in dict.fromkeys(reported.partitions):
            partition = _partition(topic, number)
            if topic is None or partition is None or broker.broker_id not in partition.replicas:
                continue
            if broker.broker_id in partition.offline_replicas:
                continue
            offline = (*partition.offline_replicas, broker.broker_id)
            record = partition_change(topic, partition, electorate, offline=offline, lost=(broker.broker_id,))
            assert record is not None, partition
            records.append(record)
    return Decision(records=tuple(records), reply=ReportOfflineReplicasResponse())


def _topic(topic_id: bytes, image: MetadataImage) -> TopicImage | None:
    return image.topics_by_id.get(uuid.UUID(bytes=topic_id)) if len(topic_id) == 16 else None


def _partition(topic: TopicImage | None, number: int) -> PartitionImage | None:
    return topic.partitions[number] if topic is not None and 0 <= number < len(topic.partitions) else None


def _led_partition(change: IsrChange, leader: int, image: MetadataImage) -> tuple[TopicImage, PartitionImage]:
    """Returns the topic and partition of the change. Raises Refusal if the partition does not exist, or if the sender
    does not lead it or does not know its current state."""
    topic = _topic(change.topic_id, image)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {change.topic_id.hex()}")
    name = f"{topic.name}-{change.partition}"
    partition = _partition(topic, change.partition)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name} does not exist")
    _check_epoch(name, "leader epoch", change.leader_epoch, partition.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH)
    if partition.leader != leader:
        raise Refusal(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {name} is led by broker {partition.leader}, not {leader}"
        )
    _check_epoch(
        name, "partition epoch", change.partition_epoch, partition.partition_epoch, ErrorCode.INVALID_UPDATE_VERSION
    )
    return topic, partition


def _check_epoch(name: str, kind: str, asked: int, current: int, older: ErrorCode) -> None:
    if asked != current:
        code = older if asked < current else ErrorCode.NOT_CONTROLLER
        raise Refusal(code, f"partition {name} has {kind} {current}, not {asked}")


def _check_isr(members: Sequence[IsrMember], leader: int, partition: PartitionImage, image: MetadataImage) -> None:
    ids = [member.broker_id for member in members]
    if leader not in ids or len(set(ids)) != len(ids) or not set(ids) <= set(partition.replicas):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{ids} cannot be in sync: expected the leader {leader} and others of"
            f" {list(partition.replicas)}, each once",
        )
    for member in members:
        if problem := _why_ineligible(member, partition, image):
            raise Refusal(ErrorCode.INELIGIBLE_REPLICA, f"replica {member.broker_id} cannot be in sync: {problem}")


def _why_ineligible(member: IsrMember, partition: PartitionImage, image: MetadataImage) -> str:
    broker = image.brokers.get(member.broker_id)
    if broker is None:
        return "its broker is not registered"
    if broker.in_controlled_shutdown:
        return "its broker is shutting down"
    if broker.fenced:
        return "its broker is fenced"
    if broker.broker_epoch != member.broker_epoch:
        return f"its broker has epoch {broker.broker_epoch}, not {member.broker_epoch}"
    if member.broker_id in partition.offline_replicas:
        return "its log directory is offline"
    if member.broker_id in partition.resigned_replicas and member.broker_id not in partition.isr:
        return "the replica has resigned"
    return ""


def _answer(answer: AlteredPartition, partition: PartitionImage, sender: int) -> None:
    if partition.leader != sender:
        # Unlike with other errors, the change was made. Either it completed a reassignment that removed the sender, or
        # it added a replica that can lead instead of a sender that has resigned.
        raise Refusal(ErrorCode.NEW_LEADER_ELECTED, f"the change made broker {partition.leader} the leader")
    answer.leader = partition.leader
    answer.leader_epoch = partition.leader_epoch
    answer.isr.extend(partition.isr)
    answer.partition_epoch = partition.partition_epoch
