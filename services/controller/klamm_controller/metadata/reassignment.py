"""Reassigns partitions to other brokers (KIP-455).

A reassignment adds the new replicas at once, and keeps the replicas to remove after them in the list. It is complete
when all added replicas are in sync (AlterPartition, partition_change). If it removes more replicas than it adds, all
replicas that stay must be in sync. Then the others are removed. Cancelling a reassignment removes the replicas that it
has added.
"""

from __future__ import annotations

from collections import Counter

from klamm.errors import ErrorCode
from klamm.wire.v1.controller_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    NamedPartitionResult,
    OngoingReassignment,
    PartitionReassignment,
)
from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.electorate import Electorate
from klamm_controller.metadata.partition_change import Brokers, partition_change
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT
from klamm_server.metadata.entities import PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import changed_partition


def reassignment_parts(request: AlterPartitionReassignmentsRequest) -> list[AlterPartitionReassignmentsRequest]:
    """Splits a big request into several, so that the queue handles each in a separate turn."""
    return [
        AlterPartitionReassignmentsRequest(
            partitions=request.partitions[start : start + CHANGES_PER_EVENT],
            keep_replication_factor=request.keep_replication_factor,
        )
        for start in range(0, max(1, len(request.partitions)), CHANGES_PER_EVENT)
    ]


def handle_alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, image: MetadataImage
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Begins or cancels reassignments. Each partition succeeds or fails by itself."""
    asked = Counter((wanted.topic, wanted.partition) for wanted in request.partitions)
    electorate = Electorate(image)
    records: list[MetadataRecord] = []
    results = []
    for wanted in request.partitions:
        result = NamedPartitionResult(topic=wanted.topic, partition=wanted.partition)
        try:
            name = f"{wanted.topic}-{wanted.partition}"
            if asked[wanted.topic, wanted.partition] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"partition {name} is named twice")
            topic, partition = image.topic(wanted.topic), image.partition(wanted.topic, wanted.partition)
            if topic is None or partition is None:
                raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name} does not exist")
            if wanted.HasField("replicas"):
                _check(name, wanted, partition, image, keep_replication_factor=request.keep_replication_factor)
                record = _reassigned(topic, partition, tuple(wanted.replicas.broker_ids), electorate)
            else:
                record = _cancelled(name, topic, partition, electorate)
            if record is not None:
                records.append(record)
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        results.append(result)
    return Decision(records=tuple(records), reply=AlterPartitionReassignmentsResponse(results=results))


def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, image: MetadataImage
) -> ListPartitionReassignmentsResponse:
    """Returns the reassignments in progress, of the requested partitions or of all."""
    asked = {(partition.topic, partition.partition) for partition in request.partitions}
    ongoing = []
    for topic_id, number in image.index.reassigned:
        topic = image.topics_by_id[topic_id]
        if not asked or (topic.name, number) in asked:
            ongoing.append(_ongoing(topic, topic.partitions[number]))
    ongoing.sort(key=lambda each: (each.topic, each.partition))
    return ListPartitionReassignmentsResponse(reassignments=ongoing)


def _ongoing(topic: TopicImage, partition: PartitionImage) -> OngoingReassignment:
    return OngoingReassignment(
        topic=topic.name,
        partition=partition.partition,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        isr=partition.isr,
    )


def _check(
    name: str,
    wanted: PartitionReassignment,
    partition: PartitionImage,
    image: MetadataImage,
    *,
    keep_replication_factor: bool,
) -> None:
    replicas = list(wanted.replicas.broker_ids)
    if not replicas or len(set(replicas)) != len(replicas):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partition {name} cannot be on brokers {replicas}: expected at least one broker, each once",
        )
    unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
    if unknown:
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partition {name} cannot be on broker {unknown[0]}: it is not registered",
        )
    size = len(_original(partition))
    if keep_replication_factor and len(replicas) != size:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"partition {name} must keep its replication factor: expected {size} replicas, not {len(replicas)}",
        )


def _original(partition: PartitionImage) -> Brokers:
    """Returns the replicas that the partition had before its current reassignment."""
    return tuple(broker_id for broker_id in partition.replicas if broker_id not in partition.adding_replicas)


def _reassigned(
    topic: TopicImage, partition: PartitionImage, target: Brokers, electorate: Electorate
) -> MetadataRecord | None:
    original = _original(partition)
    # Remove a replica that an earlier reassignment added and this one does not want, unless it may have records that
    # the others lack.
    needed = (*original, *_with_every_record(partition))
    removing = tuple(replica for replica in partition.replicas if replica in needed and replica not in target)
    return partition_change(
        topic,
        partition,
        electorate,
        replicas=(*target, *removing),
        adding=tuple(broker_id for broker_id in target if broker_id not in original),
        removing=removing,
    )


def _cancelled(
    name: str, topic: TopicImage, partition: PartitionImage, electorate: Electorate
) -> MetadataRecord | None:
    if not (partition.adding_replicas or partition.removing_replicas):
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"partition {name} is not being reassigned")
    record = partition_change(topic, partition, electorate, replicas=_original(partition), adding=(), removing=())
    assert record is not None, partition
    after = changed_partition(partition, record.partition_change)
    having = _with_every_record(partition)
    if having and not _with_every_record(after):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partition {name}: only the added replicas {list(having)} have every record, so the partition would need"
            " an unclean election without them",
        )
    return record


def _with_every_record(partition: PartitionImage) -> Brokers:
    """Returns the brokers that may lead without an unclean election. If no broker is known to have every record,
    returns those that last had every record."""
    return (*partition.isr, *partition.elr) or partition.last_known_elr
