"""All partition replicas of this broker, and the one way to change them.

Kafka's `ReplicaManager`, without the waiting and the sending: an observer is told what came of a change. Event loop
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import TopicId, TopicPartition
from klamm.records.header import BatchHeader
from klamm_broker.log.partition_log import AppendResult, ShardWriter, TransactionEnd
from klamm_broker.log.storage_failure import DiskFull, LogDir
from klamm_broker.log.verification import VerificationGuard
from klamm_broker.replica.leadership import FollowerFetch, IsrChange
from klamm_broker.replica.partition import CommittedIsr, Effects, FetchOutcome, Partition
from klamm_broker.replica.replication_quota import ReplicationQuotas
from klamm_server.clock import Clock
from klamm_server.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage

_KafkaStorageError = EXCEPTIONS[ErrorCode.KAFKA_STORAGE_ERROR]
_NotLeaderOrFollowerError = EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]
_UnknownTopicOrPartitionError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


class LeaderHint(NamedTuple):
    """Who leads a partition as far as this broker knows (KIP-951); -1: unknown."""

    leader: int
    leader_epoch: int


_NO_HINT = LeaderHint(-1, -1)


class ReplicaObserver(Protocol):
    """Who waits for partitions, and who speaks of them to others. Called in the turn of the change."""

    def on_change(self, topic_partition: TopicPartition) -> None:
        """There is more to read, or the leadership was lost or changed."""

    def on_append(self, topic_partition: TopicPartition) -> None:
        """There is more for followers, but not for readers."""

    def on_log_start(self, topic_partition: TopicPartition) -> None:
        """This leader's log, or a follower's, starts later."""

    def on_isr_change(self, partition: Partition, change: IsrChange) -> None:
        """The controller is to be asked for it."""

    def on_role(self, partition: Partition) -> None:
        """It leads, follows or does neither from now on; maybe it is gone."""

    def on_offline(self, topic_id: bytes, partition: int) -> None:
        """The replica's log dir failed: it is gone until the broker starts anew."""

    def on_no_space(self, topic_id: bytes, partition: int) -> None:
        """A full disk refused the replica a log: it is not here until there is space."""

    def on_disk_full(self, log_dir: LogDir) -> None:
        """An append found no space there."""


class BrokerDirectory:
    """What the newest metadata say of the brokers, also of those who are not to lead."""

    def __init__(self) -> None:
        self.images: Mapping[int, BrokerImage] = {}

    def broker_epoch(self, broker_id: int) -> int:
        """Of its registration, -1 if there is none."""
        broker = self.images.get(broker_id)
        return -1 if broker is None else broker.broker_epoch

    def is_eligible(self, broker_id: int) -> bool:
        """Whether it may join in-sync sets (KIP-841)."""
        broker = self.images.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def live_rack(self, broker_id: int) -> str | None:
        """Its `broker.rack`, or ""; None unless it is registered and not fenced."""
        broker = self.images.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    def live(self) -> frozenset[int]:
        """Those that are not fenced."""
        return frozenset(broker_id for broker_id, broker in self.images.items() if not broker.fenced)


class ReplicaManager:
    """Partitions by name. `image` is the metadata they were last brought in line with."""

    def __init__(self, *, broker_id: int, clock: Clock, observer: ReplicaObserver) -> None:
        self.broker_id = broker_id
        self.image = MetadataImage.empty()
        self.brokers = BrokerDirectory()
        self.quotas = ReplicationQuotas()
        self._clock = clock
        self._observer = observer
        self._partitions: dict[TopicPartition, Partition] = {}
        self._by_id: dict[tuple[bytes, int], Partition] = {}
        self._offline: dict[TopicPartition, str] = {}
        self._has_resigned = False

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    # What the metadata publisher does

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.get(topic_partition)

    def find(self, topic_id: bytes, partition: int) -> Partition | None:
        """By the topic's id, 16 bytes."""
        return self._by_id.get((topic_id, partition))

    def host(self, partition: Partition) -> None:
        """Adds a replica whose log is open."""
        self._offline.pop(partition.topic_partition, None)
        self._partitions[partition.topic_partition] = partition
        self._by_id[partition.topic_id.bytes, partition.topic_partition.partition] = partition

    def note_brokers(self, brokers: Mapping[int, BrokerImage]) -> None:
        """What the metadata say of the brokers from now on; who may join the in-sync sets does."""
        if brokers is self.brokers.images:
            return
        self.brokers.images = brokers
        self.check_lag()

    def apply(self, partition: Partition, image: PartitionImage) -> None:
        """Hands the partition its new state and wakes whoever waits for another."""
        effects = partition.apply(image, now_ms=self._clock.monotonic_ms())
        self._observer.on_role(partition)
        self._observer.on_change(partition.topic_partition)
        self._do(partition, effects._replace(high_watermark_moved=False))

    def drop(self, topic_partition: TopicPartition) -> None:
        """Takes a replica out: it is not to be here any more."""
        self._offline.pop(topic_partition, None)
        self._remove(topic_partition)

    def take_offline(
        self, topic_partition: TopicPartition, topic_id: TopicId, reason: str, *, until_restart: bool = True
    ) -> None:
        """Takes a replica out that should be here. `until_restart`: its log dir failed, and others are to know."""
        self._offline[topic_partition] = reason
        self._remove(topic_partition)
        if until_restart:
            self._observer.on_offline(topic_id.bytes, topic_partition.partition)
        else:
            self._observer.on_no_space(topic_id.bytes, topic_partition.partition)

    def offline_reason(self, topic_partition: TopicPartition) -> str | None:
        """Why a replica that should be here cannot be reached; None when it can, or should not."""
        return self._offline.get(topic_partition)

    @property
    def offline_count(self) -> int:
        """Replicas that should be here and cannot be reached."""
        return len(self._offline)

    def _remove(self, topic_partition: TopicPartition) -> None:
        partition = self._partitions.pop(topic_partition, None)
        if partition is not None:
            del self._by_id[partition.topic_id.bytes, topic_partition.partition]
            self._resign(partition)

    def resign_all(self) -> None:
        """The broker stops: whoever waits is answered, and no partition is led here any more."""
        self._has_resigned = True
        for partition in self._partitions.values():
            self._resign(partition)

    def _resign(self, partition: Partition) -> None:
        partition.resign()
        self._observer.on_role(partition)
        self._observer.on_change(partition.topic_partition)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Of every replica that is online, to be checkpointed."""
        return {name: partition.high_watermark for name, partition in self._partitions.items()}

    # What requests do

    def leader(self, topic_partition: TopicPartition, current_leader_epoch: int = -1) -> Partition:
        """The partition, led by this broker under the epoch the caller knows (-1: any).

        Raises as `hosted`, and NotLeaderOrFollowerError, FencedLeaderEpochError or UnknownLeaderEpochError."""
        partition = self.hosted(topic_partition)
        partition.check_leader(current_leader_epoch)
        return partition

    def hosted(self, topic_partition: TopicPartition) -> Partition:
        """The replica here. Raises UnknownTopicOrPartitionError, KafkaStorageError or NotLeaderOrFollowerError."""
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise self._why_not_here(topic_partition)
        return partition

    def _why_not_here(self, topic_partition: TopicPartition) -> Exception:
        if (reason := self.offline_reason(topic_partition)) is not None:
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

    def awaits_epoch(self, topic_partition: TopicPartition, leader_epoch: int) -> bool:
        """Whether the metadata are still to come by which somebody knows of that leader epoch of a replica here."""
        replica = self._partitions.get(topic_partition)
        return replica is not None and replica.leader_epoch < leader_epoch and not self._has_resigned

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint:
        """For answers that refuse because another broker leads, or this one under a newer epoch."""
        replica = self._partitions.get(topic_partition)
        if replica is not None and replica.leader != NO_LEADER:
            return LeaderHint(replica.leader, replica.leader_epoch)
        found = self.image.partition(topic_partition.topic, topic_partition.partition)
        # This broker refuses although its metadata name it: it is stopping. Nobody better is known yet.
        if found is None or found.leader in (NO_LEADER, self.broker_id):
            return _NO_HINT
        return LeaderHint(found.leader, found.leader_epoch)

    def append(
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        *,
        acks: int,
        guard: VerificationGuard | None = None,
    ) -> tuple[Partition, AppendResult]:
        """Appends a record set to a partition this broker leads.

        Raises as `leader` does, NotEnoughReplicasError with acks=-1, and as `Partition.append`."""
        partition = self.leader(topic_partition)
        if acks == -1:
            partition.check_min_isr()
        try:
            appended, high_watermark_moved = partition.append(records, now_ms=self._clock.wall_ms(), guard=guard)
        except DiskFull as error:
            self._observer.on_disk_full(error.log_dir)
            raise
        self._tell(topic_partition, high_watermark_moved)
        return partition, appended

    def append_as_coordinator(
        self, topic_partition: TopicPartition, records: memoryview, writer: ShardWriter
    ) -> tuple[Partition, AppendResult]:
        """As `append` with acks=-1, to the shard of an internal topic. Raises as `Partition.append_as_coordinator`."""
        partition = self.leader(topic_partition)
        partition.check_min_isr()
        now_ms = self._clock.wall_ms()
        try:
            appended, high_watermark_moved = partition.append_as_coordinator(records, writer, now_ms=now_ms)
        except DiskFull as error:
            self._observer.on_disk_full(error.log_dir)
            raise
        self._tell(topic_partition, high_watermark_moved)
        return partition, appended

    def append_marker(self, topic_partition: TopicPartition, end: TransactionEnd) -> tuple[Partition, AppendResult]:
        """As `append` with acks=-1, of the marker that ends a transaction. Raises as `Partition.append_marker`."""
        partition = self.leader(topic_partition)
        partition.check_min_isr()
        try:
            appended, high_watermark_moved = partition.append_marker(end, now_ms=self._clock.wall_ms())
        except DiskFull as error:
            self._observer.on_disk_full(error.log_dir)
            raise
        self._tell(topic_partition, high_watermark_moved)
        return partition, appended

    def begin_verification(self, topic_partition: TopicPartition, header: BatchHeader) -> VerificationGuard | None:
        """Raises as `leader` does, and as `Partition.begin_verification`."""
        return self.leader(topic_partition).begin_verification(header, now_ms=self._clock.wall_ms())

    def _tell(self, topic_partition: TopicPartition, high_watermark_moved: bool) -> None:
        if high_watermark_moved:
            self._observer.on_change(topic_partition)
        else:
            self._observer.on_append(topic_partition)

    def delete_records(self, partition: Partition, before_offset: int) -> None:
        """Moves the log's start. Raises OffsetOutOfRangeError."""
        if partition.log.advance_log_start(before_offset, high_watermark=partition.high_watermark):
            self._observer.on_log_start(partition.topic_partition)

    # What followers and the controller say

    def on_follower_fetch(self, partition: Partition, fetch: FollowerFetch) -> FetchOutcome:
        """Raises as `Partition.on_follower_fetch`."""
        outcome = partition.on_follower_fetch(fetch, now_ms=self._clock.monotonic_ms())
        self._do(partition, outcome.effects)
        return outcome

    def check_lag(self) -> None:
        """Looks at every in-sync set that this broker is responsible for."""
        now_ms = self._clock.monotonic_ms()
        for partition in self._partitions.values():
            if partition.leadership is not None and partition.leadership.followers:
                self._do(partition, partition.check_lag(now_ms=now_ms))

    def review(self, partition: Partition) -> None:
        """Something it depends on has changed, such as `min.insync.replicas`."""
        self._do(partition, partition.review())

    def on_isr_committed(self, partition: Partition, change: IsrChange, committed: CommittedIsr) -> None:
        """The controller answered a change of the in-sync set."""
        effects = partition.on_isr_committed(change, committed, now_ms=self._clock.monotonic_ms())
        self._observer.on_change(partition.topic_partition)
        self._do(partition, effects._replace(high_watermark_moved=False))

    def on_isr_refused(self, partition: Partition, change: IsrChange, code: ErrorCode) -> None:
        """The controller refused a change of the in-sync set, or nobody knows what it did."""
        self._do(partition, partition.on_isr_refused(change, code))

    def _do(self, partition: Partition, effects: Effects) -> None:
        if effects.isr_change is not None:
            self._observer.on_isr_change(partition, effects.isr_change)
        if effects.high_watermark_moved:
            self._observer.on_change(partition.topic_partition)
        if effects.log_start_moved:
            self._observer.on_log_start(partition.topic_partition)
