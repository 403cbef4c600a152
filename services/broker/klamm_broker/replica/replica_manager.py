"""Owns all partition replicas of this broker. All changes to them go through this module.

Kafka's `ReplicaManager`, without the waiting and the sending. The manager notifies an observer of the effects of each
change. Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.header import BatchHeader
from klamm_broker.log.files.storage_failure import DiskFull, LogDir
from klamm_broker.log.partition.partition_log import AppendRequest, AppendResult
from klamm_broker.log.producers.verification import VerificationGuard
from klamm_broker.replica.broker_directory import BrokerDirectory
from klamm_broker.replica.leadership import FollowerFetch, IsrChange
from klamm_broker.replica.offline_replicas import OfflineReplicas
from klamm_broker.replica.partition import CommittedIsr, FetchOutcome, Partition, PartitionEffects
from klamm_broker.replica.replication_quota import ReplicationQuotas
from klamm_server.metadata.entities import BrokerImage, PartitionImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import Clock

_KafkaStorageError = EXCEPTIONS[ErrorCode.KAFKA_STORAGE_ERROR]
_NotLeaderOrFollowerError = EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]
_UnknownTopicOrPartitionError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


class ReplicaObserver(Protocol):
    """The manager calls an observer when a partition changes, in the same turn of the event loop. The observer wakes
    waiting requests, and informs followers and the controller."""

    def on_change(self, topic_partition: TopicPartition) -> None:
        """Called when there is more to read, or when the leadership was lost or changed."""

    def on_append(self, topic_partition: TopicPartition) -> None:
        """Called when there are new records for followers that readers cannot fetch yet."""

    def on_sync_owed(self, partition: Partition) -> None:
        """Called after an append when the records must be synced before they are acknowledged (`flush.messages`). The
        observer calls `ReplicaManager.on_synced` when they are."""

    def on_log_start(self, topic_partition: TopicPartition) -> None:
        """Called when the log start offset of this leader or of a follower has moved."""

    def on_isr_change(self, partition: Partition, change: IsrChange) -> None:
        """Called when the controller must be asked for the change."""

    def on_role(self, partition: Partition) -> None:
        """Called when the partition starts or stops to lead or follow, or was removed."""

    def on_offline(self, topic_id: bytes, partition: int) -> None:
        """Called when the replica's log directory failed. The replica is offline until the broker restarts."""

    def on_no_space(self, topic_id: bytes, partition: int) -> None:
        """Called when a full disk prevented the creation of the replica's log. The replica is unavailable until there
        is space."""

    def on_disk_full(self, log_dir: LogDir) -> None:
        """Called when an append failed because the disk of `log_dir` is full."""


class ReplicaManager:
    """The replicas of this broker by partition. `image` is the metadata that was applied last."""

    def __init__(self, *, broker_id: int, clock: Clock, observer: ReplicaObserver) -> None:
        self.broker_id = broker_id
        self.image = MetadataImage.empty()
        self.brokers = BrokerDirectory()
        self.quotas = ReplicationQuotas()
        self._clock = clock
        self._observer = observer
        self._partitions: dict[TopicPartition, Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self.offline = OfflineReplicas()
        self._has_resigned = False

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    # Calls of the metadata publisher

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.get(topic_partition)

    def find(self, topic_id: bytes, partition: int) -> Partition | None:
        """Returns the partition of the topic with this id (16 bytes), or None if this broker has no replica of it."""
        return self._by_id.get((topic_id, partition))

    def host(self, partition: Partition) -> None:
        """Adds a replica whose log is open."""
        self.offline.remove(partition.topic_partition)
        self._partitions[partition.topic_partition] = partition
        self._by_id[partition.topic_id.bytes, partition.topic_partition.partition] = partition

    def note_brokers(self, brokers: Mapping[int, BrokerImage]) -> None:
        """Sets the brokers of the newest metadata, and proposes replicas that may now join in-sync sets."""
        if brokers is self.brokers.images:
            return
        self.brokers.images = brokers
        self.check_lag()

    def apply(self, partition: Partition, image: PartitionImage) -> None:
        """Applies a new state to the partition, and wakes the requests that wait for the partition."""
        effects = partition.apply(image, now_ms=self._clock.monotonic_ms())
        self._observer.on_role(partition)
        self._observer.on_change(partition.topic_partition)
        self._apply_effects(partition, effects._replace(high_watermark_moved=False))

    def drop(self, topic_partition: TopicPartition) -> None:
        """Removes a replica that is no longer assigned to this broker."""
        self.offline.remove(topic_partition)
        self._remove(topic_partition)

    def take_offline(
        self, topic_partition: TopicPartition, topic_id: TopicId, reason: str, *, until_restart: bool = True
    ) -> None:
        """Removes a replica that is still assigned to this broker but unavailable.

        With `until_restart` its log directory failed, and the observer reports this to the controller. Otherwise a full
        disk has no space for its log."""
        self.offline.add(topic_partition, reason)
        self._remove(topic_partition)
        if until_restart:
            self._observer.on_offline(topic_id.bytes, topic_partition.partition)
        else:
            self._observer.on_no_space(topic_id.bytes, topic_partition.partition)

    def _remove(self, topic_partition: TopicPartition) -> None:
        partition = self._partitions.pop(topic_partition, None)
        if partition is not None:
            del self._by_id[partition.topic_id.bytes, topic_partition.partition]
            self._resign(partition)

    def resign_all(self) -> None:
        """Ends all leadership because the broker stops. Waiting requests are answered."""
        self._has_resigned = True
        for partition in self._partitions.values():
            self._resign(partition)

    def _resign(self, partition: Partition) -> None:
        partition.resign()
        self._observer.on_role(partition)
        self._observer.on_change(partition.topic_partition)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Returns the high watermark of every online replica, for the checkpoint."""
        return {name: partition.high_watermark for name, partition in self._partitions.items()}

    # Calls of requests

    def leader(self, topic_partition: TopicPartition, current_leader_epoch: int = -1) -> Partition:
        """Returns the partition if this broker leads it under the epoch that the caller knows (-1 for any).

        Raises as `hosted`, and NotLeaderOrFollowerError, FencedLeaderEpochError or UnknownLeaderEpochError."""
        partition = self.hosted(topic_partition)
        partition.check_leader(current_leader_epoch)
        return partition

    def hosted(self, topic_partition: TopicPartition) -> Partition:
        """Returns this broker's replica. Raises UnknownTopicOrPartitionError, KafkaStorageError or
        NotLeaderOrFollowerError."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self._why_not_here(topic_partition)
        return partition

    def _why_not_here(self, topic_partition: TopicPartition) -> Exception:
        if (reason := self.offline.reason(topic_partition)) is not None:
            return _KafkaStorageError(f"{topic_partition}: {reason}")
        topic = self.image.topic(topic_partition.topic)
        if topic is None:
            return _UnknownTopicOrPartitionError(f"topic {topic_partition.topic!r} does not exist")
        if not 0 <= topic_partition.partition < len(topic.partitions):
            return _UnknownTopicOrPartitionError(
                f"topic {topic.name!r} has {len(topic.partitions)} partitions, but no partition"
                f" {topic_partition.partition}"
            )
        return _NotLeaderOrFollowerError(f"{topic_partition} has no replica on broker {self.broker_id}")

    def awaits_epoch(self, topic_partition: TopicPartition, leader_epoch: int) -> bool:
        """Returns True if this broker has a replica whose metadata are older than `leader_epoch`, which a client
        knows."""
        replica = self._partitions.get(topic_partition)
        return replica is not None and replica.leader_epoch < leader_epoch and not self._has_resigned

    def append(
        self, topic_partition: TopicPartition, request: AppendRequest, *, acks: int = -1
    ) -> tuple[Partition, AppendResult]:
        """Appends to a partition that this broker leads.

        Raises as `leader`, NotEnoughReplicasError with acks=-1, and as `Partition.append`."""
        partition = self.leader(topic_partition)
        if acks == -1:
            partition.check_min_isr()
        try:
            appended, high_watermark_moved = partition.append(request, now_ms=self._clock.wall_ms())
        except DiskFull as error:
            self._observer.on_disk_full(error.log_dir)
            raise
        self._notify_append(partition, high_watermark_moved)
        return partition, appended

    def on_synced(self, partition: Partition) -> None:
        """Moves the high watermark after records were synced, and wakes the requests that wait for this."""
        partition.maybe_advance_high_watermark()
        self._observer.on_change(partition.topic_partition)

    def begin_verification(self, topic_partition: TopicPartition, header: BatchHeader) -> VerificationGuard | None:
        """Begins the verification of a transaction. Raises as `leader` and `Partition.begin_verification`."""
        return self.leader(topic_partition).begin_verification(header, now_ms=self._clock.wall_ms())

    def _notify_append(self, partition: Partition, high_watermark_moved: bool) -> None:
        if high_watermark_moved:
            self._observer.on_change(partition.topic_partition)
            return
        self._observer.on_append(partition.topic_partition)
        if partition.log.flusher.owes_sync:
            self._observer.on_sync_owed(partition)

    def delete_records(self, partition: Partition, before_offset: int) -> None:
        """Moves the log start offset. Raises OffsetOutOfRangeError."""
        if partition.log.advance_log_start(before_offset, high_watermark=partition.high_watermark):
            self._observer.on_log_start(partition.topic_partition)

    def on_log_start_moved(self, partition: Partition) -> None:
        """Tells the followers and waiting requests that retention moved the log start offset."""
        self._observer.on_log_start(partition.topic_partition)

    # Calls for followers and the controller

    def on_follower_fetch(self, partition: Partition, fetch: FollowerFetch) -> FetchOutcome:
        """Applies a follower's fetch and its effects. Raises as `Partition.on_follower_fetch`."""
        outcome = partition.on_follower_fetch(fetch, now_ms=self._clock.monotonic_ms())
        self._apply_effects(partition, outcome.effects)
        return outcome

    def check_lag(self) -> None:
        """Checks the in-sync set of every partition that this broker leads."""
        now_ms = self._clock.monotonic_ms()
        for partition in self._partitions.values():
            if partition.leadership is not None and partition.leadership.followers:
                self._apply_effects(partition, partition.check_lag(now_ms=now_ms))

    def review(self, partition: Partition) -> None:
        """Reviews a partition after a change that affects it, such as of `min.insync.replicas`."""
        self._apply_effects(partition, partition.review())

    def on_isr_committed(self, partition: Partition, change: IsrChange, committed: CommittedIsr) -> None:
        """Applies the controller's answer to a change of the in-sync set."""
        effects = partition.on_isr_committed(change, committed, now_ms=self._clock.monotonic_ms())
        self._observer.on_change(partition.topic_partition)
        self._apply_effects(partition, effects._replace(high_watermark_moved=False))

    def on_isr_refused(self, partition: Partition, change: IsrChange, code: ErrorCode) -> None:
        """Handles a change of the in-sync set that the controller refused, or whose outcome is unknown."""
        self._apply_effects(partition, partition.on_isr_refused(change, code))

    def _apply_effects(self, partition: Partition, effects: PartitionEffects) -> None:
        if effects.isr_change is not None:
            self._observer.on_isr_change(partition, effects.isr_change)
        if effects.high_watermark_moved:
            self._observer.on_change(partition.topic_partition)
        if effects.log_start_moved:
            self._observer.on_log_start(partition.topic_partition)
