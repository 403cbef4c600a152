"""All partition replicas of this broker, and the one way to append to them.

Kafka's `ReplicaManager`, without the waiting: whoever waits for a partition is told of its changes. Event loop
only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicPartition
from klamm_broker.log.partition_log import AppendResult
from klamm_broker.replica.partition import Partition
from klamm_server.clock import Clock
from klamm_server.metadata.image import MetadataImage, PartitionImage

_KafkaStorageError = EXCEPTIONS[ErrorCode.KAFKA_STORAGE_ERROR]
_NotLeaderOrFollowerError = EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]
_UnknownTopicOrPartitionError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


class LeaderHint(NamedTuple):
    """Who leads a partition as far as this broker knows (KIP-951); -1: unknown."""

    leader: int
    leader_epoch: int


_NO_HINT = LeaderHint(-1, -1)


class ReplicaManager:
    """Partitions by name. `image` is the metadata they were last brought in line with."""

    def __init__(self, *, broker_id: int, clock: Clock, on_change: Callable[[TopicPartition], None]) -> None:
        """`on_change` is told of a partition that has more to read, or that lost or changed its leadership."""
        self.broker_id = broker_id
        self.image = MetadataImage.empty()
        self._clock = clock
        self._on_change = on_change
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, str] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    # What the metadata publisher does

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.get(topic_partition)

    def host(self, partition: Partition) -> None:
        """Adds a replica whose log is open."""
        self._offline.pop(partition.topic_partition, None)
        self._partitions[partition.topic_partition] = partition

    def apply(self, partition: Partition, image: PartitionImage) -> None:
        """Hands the partition its new state and wakes whoever waits for another."""
        partition.apply(image)
        self._on_change(partition.topic_partition)

    def drop(self, topic_partition: TopicPartition, offline_reason: str | None = None) -> Partition | None:
        """Takes a replica out: its topic is gone, or with a reason its log dir."""
        if offline_reason is not None:
            self._offline[topic_partition] = offline_reason
        else:
            self._offline.pop(topic_partition, None)
        partition = self._partitions.pop(topic_partition, None)
        if partition is not None:
            partition.resign()
            self._on_change(topic_partition)
        return partition

    def resign_all(self) -> None:
        """The broker stops: whoever waits is answered, and no partition is led here any more."""
        for partition in self._partitions.values():
            partition.resign()
        for topic_partition in self._partitions:
            self._on_change(topic_partition)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of every replica that is online, to be checkpointed."""
        return {name: partition.high_watermark for name, partition in self._partitions.items()}

    # What requests do

    def leader(self, topic_partition: TopicPartition, current_leader_epoch: int = -1) -> Partition:
        """The partition, led by this broker under the epoch the caller knows (-1: any).

        Raises UnknownTopicOrPartitionError, KafkaStorageError, NotLeaderOrFollowerError,
        FencedLeaderEpochError or UnknownLeaderEpochError."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self._why_not_here(topic_partition)
        partition.check_leader(current_leader_epoch)
        return partition

    def _why_not_here(self, topic_partition: TopicPartition) -> Exception:
        if (reason := self._offline.get(topic_partition)) is not None:
            return _KafkaStorageError(f"{topic_partition}: {reason}")
        topic = self.image.topic(topic_partition.topic)
        if topic is None:
            return _UnknownTopicOrPartitionError(f"there is no topic {topic_partition.topic!r}")
        if not 0 <= topic_partition.partition < len(topic.partitions):
            return _UnknownTopicOrPartitionError(
                f"topic {topic.name!r} has {len(topic.partitions)} partitions, none numbered"
                f" {topic_partition.partition}"
            )
        return _NotLeaderOrFollowerError(f"{topic_partition} has no replica on broker {self.broker_id}")

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint:
        """For answers that refuse because another broker leads."""
        found = self.image.partition(topic_partition.topic, topic_partition.partition)
        # This broker refuses although its metadata name it: it is stopping. Nobody better is known yet.
        if found is None or found.leader == self.broker_id:
            return _NO_HINT
        return LeaderHint(found.leader, found.leader_epoch)

    def append(
        self, topic_partition: TopicPartition, records: memoryview, *, acks: int
    ) -> tuple[Partition, AppendResult]:
        """Appends a record set to a partition this broker leads.

        Raises as `leader` does, NotEnoughReplicasError with acks=-1, and as `Partition.append`."""
        partition = self.leader(topic_partition)
        if acks == -1:
            partition.check_min_isr()
        appended, high_watermark_moved = partition.append(records, now_ms=self._clock.wall_ms())
        if high_watermark_moved:
            self._on_change(topic_partition)
        return partition, appended
