"""The changes of partitions when a broker becomes active, is lost, or registers again (Kafka's
generateLeaderAndIsrUpdates).

The first changes are in the decision's own batch, which is enough in a small cluster. A sweep makes the rest.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Iterator, Sequence

from klamm.wire.v1.metadata_pb2 import MetadataRecord
from klamm_controller.metadata.electorate import MIN_ISR, Electorate
from klamm_controller.metadata.partition_change import partition_change
from klamm_controller.metadata.sweep import Change, Sweep
from klamm_server.metadata.entities import PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay

Consequences = tuple[tuple[MetadataRecord, ...], Sweep | None]


def after_loss(image: MetadataImage, broker_id: int) -> Consequences:
    """Returns the first changes, and the sweep of the rest, after `broker_id` was lost: it leaves the in-sync sets."""
    sweep = Sweep(f"loss of broker {broker_id}", image.index.hosted_by(broker_id))
    return _begin(sweep, image, Electorate(image, lost=broker_id))


def after_return(image: MetadataImage, broker_id: int) -> Consequences:
    """Returns the first changes, and the sweep of the rest, after `broker_id` became active: it may lead partitions
    without a leader."""
    sweep = Sweep(f"return of broker {broker_id}", image.index.hosted_by(broker_id))
    return _begin(sweep, image, Electorate(image, found=broker_id))


class Stop(enum.Enum):
    """The way in which a broker stopped, by what its logs may have lost."""

    CLEAN = enum.auto()
    """Its logs have lost nothing."""
    UNCLEAN = enum.auto()
    """Its logs may have lost their last records."""
    LOG_DIRS_GONE = enum.auto()
    """Its logs may have lost everything, because one of its log directories is missing."""


def end_of_life(broker_id: int, stop: Stop) -> Change:
    """Returns the function that changes the partitions of a broker when the broker registers again.

    The broker leaves their in-sync sets. Its replicas count as online and as not resigned until the broker reports
    them. If its logs may have lost records (`stop`), it also leaves the eligible leader replicas. If its logs may be
    empty, it leaves the last known eligible leader replicas too.
    """
    lost = () if stop is Stop.CLEAN else (broker_id,)
    gone = (broker_id,) if stop is Stop.LOG_DIRS_GONE else ()

    def change(topic: TopicImage, partition: PartitionImage, electorate: Electorate) -> MetadataRecord | None:
        held = (
            *partition.isr,
            *partition.offline_replicas,
            *partition.resigned_replicas,
            *(partition.elr if lost else ()),
            *(partition.last_known_elr if gone else ()),
        )
        if broker_id not in held:
            return None
        offline = tuple(other for other in partition.offline_replicas if other != broker_id)
        resigned = tuple(other for other in partition.resigned_replicas if other != broker_id)
        return partition_change(topic, partition, electorate, offline=offline, resigned=resigned, lost=lost, gone=gone)

    return change


def after_config_changes(image: MetadataImage, configs: Sequence[MetadataRecord]) -> tuple[MetadataRecord, ...]:
    """Returns the partition changes that must be in the same batch as the records `configs`.

    A smaller min.insync.replicas lets a leader commit records that an eligible leader replica lacks. Such a replica
    stops being eligible in the batch that changes the config. So no leader commits with the new value while the replica
    is still eligible. If `configs` allow unclean elections, nothing changes here: the brokers' next reports of their
    logs elect leaders (`unclean_recovery`).
    """
    if all(record.config.name != MIN_ISR for record in configs):
        return ()
    electorate = Electorate(replay(image, configs, image.end_index + len(configs)))
    changes = []
    for topic_id, number in image.index.with_eligible:
        topic = image.topics_by_id[topic_id]
        record = partition_change(topic, topic.partitions[number], electorate)
        if record is not None:
            changes.append(record)
    return tuple(changes)


def unclean_elections(
    image: MetadataImage, records: Iterable[MetadataRecord]
) -> Iterator[tuple[TopicImage, PartitionImage, int]]:
    """Yields (topic, partition, leader) of each partition to which `records` give a leader that may lack committed
    records. The partition is the one in `image`, before the records. An only replica is left out, because no replica
    has more."""
    for record in records:
        change = record.partition_change
        if not change.unclean:
            continue
        topic = image.topics_by_id[uuid.UUID(bytes=change.topic_id)]
        partition = topic.partitions[change.partition]
        if len(partition.replicas) > 1:
            yield topic, partition, change.leader


def _begin(sweep: Sweep, image: MetadataImage, electorate: Electorate) -> Consequences:
    changes = sweep.next_changes(image, electorate)
    return changes, None if sweep.is_done else sweep
