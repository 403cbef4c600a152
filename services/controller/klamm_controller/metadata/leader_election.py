"""The changes of partitions when a broker comes, goes or registers again (Kafka's generateLeaderAndIsrUpdates).

The first changes are part of the decision, so that in a small cluster all is one batch; the rest is swept.
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
    """`broker_id` may not lead from now on: it leaves the in-sync sets."""
    sweep = Sweep(f"loss of broker {broker_id}", image.index.hosted_by(broker_id))
    return _begin(sweep, image, Electorate(image, lost=broker_id))


def after_return(image: MetadataImage, broker_id: int) -> Consequences:
    """`broker_id` is active from now on: it may lead what nobody leads."""
    sweep = Sweep(f"return of broker {broker_id}", image.index.hosted_by(broker_id))
    return _begin(sweep, image, Electorate(image, found=broker_id))


class Stop(enum.Enum):
    """How a broker ended a life, by what its logs may have lost."""

    CLEAN = enum.auto()
    """Nothing."""
    UNCLEAN = enum.auto()
    """Their tails."""
    LOG_DIRS_GONE = enum.auto()
    """All: a log dir that it had is not there any more."""


def end_of_life(broker_id: int, stop: Stop) -> Change:
    """Returns how the partitions of a broker change when the broker registers again.

    The broker leaves their in-sync sets. Its replicas count as online and as not resigned until the broker says
    otherwise. If its logs may have lost records (`stop`), it also leaves the eligible leader replicas; if they may be
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
    stops being eligible at the same moment as the config changes, so that no leader commits with the new value before.
    If `configs` allow unclean elections, nothing changes here: the brokers' next reports of their logs elect leaders
    (`unclean_recovery`).
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
