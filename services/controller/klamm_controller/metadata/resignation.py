"""The resignation of replicas. A broker resigns a replica that should neither lead nor be in sync while another in-sync
replica can lead.

For example, a broker resigns its replicas when its disk is full, because it can read but not append. Unlike an offline
replica, a resigned replica has lost nothing. So it may still lead if no other replica can, and it may be eligible. The
replica resumes when its broker asks for it or registers again. `partition_change` computes the next leader and in-sync
set.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence

from klamm.wire.v1.controller_pb2 import ResignedReplicas, ResignReplicasRequest, ResignReplicasResponse
from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.electorate import Electorate
from klamm_controller.metadata.partition_change import partition_change
from klamm_controller.metadata.registered import UUID_BYTES, registered_broker
from klamm_controller.metadata.sweep import CHANGES_PER_EVENT
from klamm_server.metadata.entities import PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage


def resign_replicas_parts(request: ResignReplicasRequest) -> list[ResignReplicasRequest]:
    """Splits a big request into several, so that the queue handles each in a separate turn."""
    parts = [
        *(ResignReplicasRequest(resigned=pieces) for pieces in _in_pieces(request.resigned)),
        *(ResignReplicasRequest(resumed=pieces) for pieces in _in_pieces(request.resumed)),
    ] or [ResignReplicasRequest()]
    for part in parts:
        part.broker_id, part.broker_epoch = request.broker_id, request.broker_epoch
    return parts


def _in_pieces(named: Iterable[ResignedReplicas]) -> Iterator[list[ResignedReplicas]]:
    """Splits the replicas into lists that one turn can change."""
    pieces: list[ResignedReplicas] = []
    room = CHANGES_PER_EVENT
    for topic in named:
        start = 0
        while start < len(topic.partitions):
            numbers = topic.partitions[start : start + room]
            pieces.append(ResignedReplicas(topic_id=topic.topic_id, partitions=numbers))
            start += len(numbers)
            room -= len(numbers)
            if not room:
                yield pieces
                pieces, room = [], CHANGES_PER_EVENT
    if pieces:
        yield pieces


def handle_resign_replicas(request: ResignReplicasRequest, image: MetadataImage) -> Decision[ResignReplicasResponse]:
    """Marks replicas as resigned or as resumed. Ignores replicas that the broker does not host. If a replica is in both
    lists, it resigns."""
    try:
        broker = registered_broker(image, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        return Decision(reply=ResignReplicasResponse(error_code=refusal.code, error_message=refusal.message))
    electorate = Electorate(image)
    resigning = dict.fromkeys(_partitions(request.resigned, image), True)
    wanted = {**dict.fromkeys(_partitions(request.resumed, image), False), **resigning}
    records: list[MetadataRecord] = []
    for (topic_id, number), resigns in wanted.items():
        topic = image.topics_by_id[topic_id]
        partition = topic.partitions[number]
        record = _change(topic, partition, broker.broker_id, resigns, electorate)
        if record is not None:
            records.append(record)
    return Decision(records=tuple(records), reply=ResignReplicasResponse())


def _partitions(named: Sequence[ResignedReplicas], image: MetadataImage) -> Iterator[tuple[uuid.UUID, int]]:
    """Yields the named partitions that exist."""
    for one in named:
        topic = image.topics_by_id.get(uuid.UUID(bytes=one.topic_id)) if len(one.topic_id) == UUID_BYTES else None
        if topic is None:
            continue
        for number in one.partitions:
            if 0 <= number < len(topic.partitions):
                yield topic.topic_id, number


def _change(
    topic: TopicImage, partition: PartitionImage, broker_id: int, resigns: bool, electorate: Electorate
) -> MetadataRecord | None:
    if broker_id not in partition.replicas or (broker_id in partition.resigned_replicas) is resigns:
        return None
    others = tuple(other for other in partition.resigned_replicas if other != broker_id)
    resigned = (*others, broker_id) if resigns else others
    return partition_change(topic, partition, electorate, resigned=resigned)
