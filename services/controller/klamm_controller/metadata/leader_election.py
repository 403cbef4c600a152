"""Who leads a partition when brokers come and go, for any replication factor.

A leader is the first replica, in the order of preference, that is in sync and on an active broker (one that
is neither fenced nor shutting down). A broker that is fenced leaves every in-sync set but those it is the last of:
that one keeps its last member, so that no other replica can later pretend to have everything (KIP-841).
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from klamm.wire.v1.metadata_pb2 import BrokerIds, MetadataRecord, PartitionChangeRecord
from klamm_server.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage


def is_active(broker: BrokerImage | None) -> bool:
    """Whether the broker may lead and join in-sync sets."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def active_brokers(image: MetadataImage) -> frozenset[int]:
    """The ids of the brokers that may lead."""
    return frozenset(broker_id for broker_id, broker in image.brokers.items() if is_active(broker))


def elect(replicas: tuple[int, ...], isr: Container[int], active: Container[int]) -> int:
    """The first replica in sync on an active broker, or NO_LEADER."""
    return next((replica for replica in replicas if replica in isr and replica in active), NO_LEADER)


def changes_on_loss(image: MetadataImage, broker_id: int, *, leave_isr: bool) -> Iterator[MetadataRecord]:
    """What changes when `broker_id` may no longer lead; with `leave_isr` it also leaves the in-sync sets."""
    active = active_brokers(image) - {broker_id}
    for topic, partition in _partitions(image):
        if broker_id not in partition.isr:
            continue
        isr = partition.isr
        if leave_isr and len(isr) > 1:
            isr = tuple(replica for replica in isr if replica != broker_id)
        leader = partition.leader
        if leader == broker_id:
            leader = elect(partition.replicas, isr, active)
        yield from partition_change(topic, partition, isr=isr, leader=leader)


def changes_on_return(image: MetadataImage, broker_id: int) -> Iterator[MetadataRecord]:
    """What changes when `broker_id` becomes active: leaderless partitions that it is in sync with."""
    active = active_brokers(image) | {broker_id}
    for topic, partition in _partitions(image):
        if partition.leader == NO_LEADER and broker_id in partition.isr:
            leader = elect(partition.replicas, partition.isr, active)
            yield from partition_change(topic, partition, isr=partition.isr, leader=leader)


def partition_change(
    topic: TopicImage, partition: PartitionImage, *, isr: tuple[int, ...], leader: int
) -> Iterator[MetadataRecord]:
    """The record of the difference, when there is one."""
    record = PartitionChangeRecord(topic_id=topic.topic_id.bytes, partition=partition.partition)
    if isr != partition.isr:
        record.isr.CopyFrom(BrokerIds(broker_ids=isr))
    if leader != partition.leader:
        record.leader = leader
    if record.HasField("isr") or record.HasField("leader"):
        yield MetadataRecord(partition_change=record)


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    """Whether some partition is led by `broker_id`."""
    return any(partition.leader == broker_id for _, partition in _partitions(image))


def _partitions(image: MetadataImage) -> Iterator[tuple[TopicImage, PartitionImage]]:
    for topic in image.topics_by_id.values():
        for partition in topic.partitions:
            yield topic, partition
