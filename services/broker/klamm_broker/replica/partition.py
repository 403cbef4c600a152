"""One partition replica on this broker: does it lead, under which epoch, and what is committed.

Kafka's `kafka.cluster.Partition` (KIP-101, 320, 497). The log below stores; this decides who may read and
write, and how far. Event loop only: nothing here waits, and no lock is needed.

Invariants: the high watermark never moves back while the broker leads, and log start <= high watermark <=
log end; the leader epoch only grows; `readable_bytes_total` only grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import INTERNAL_TOPICS, TopicPartition
from klamm.records.errors import CorruptBatchError
from klamm.records.header import BatchHeader, iter_headers
from klamm_broker.log.partition_log import AppendResult, PartitionLog
from klamm_broker.log.record_set import AppendOrigin, check_produced
from klamm_broker.replica.producer_state import ProducerStates, WrittenBatch
from klamm_server.metadata.image import NO_LEADER, PartitionImage

_FencedLeaderEpochError = EXCEPTIONS[ErrorCode.FENCED_LEADER_EPOCH]
_NotEnoughReplicasError = EXCEPTIONS[ErrorCode.NOT_ENOUGH_REPLICAS]
_NotLeaderOrFollowerError = EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]
_UnknownLeaderEpochError = EXCEPTIONS[ErrorCode.UNKNOWN_LEADER_EPOCH]


def committed_offset(log_end_offset: int, isr_others: Sequence[int], end_offsets: Mapping[int, int]) -> int:
    """What every in-sync replica has: the least of our own end and those the others reported.

    An in-sync replica that has not reported yet holds it at 0."""
    return min([log_end_offset, *(end_offsets.get(replica, 0) for replica in isr_others)])


class Partition:
    """A replica and, while this broker leads, the leader's picture of the others."""

    def __init__(
        self, topic_partition: TopicPartition, log: PartitionLog, *, broker_id: int, high_watermark: int
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self._broker_id = broker_id
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self._isr_others: tuple[int, ...] = ()
        self._follower_end_offsets: dict[int, int] = {}
        self._producers: ProducerStates | None = None
        self.high_watermark = high_watermark
        self.readable_bytes_total = 0
        """Bytes that became readable since the replica was opened: what delayed fetches count."""
        self._unreadable_bytes = 0

    @property
    def is_leader(self) -> bool:
        return self.leader == self._broker_id

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed stops; the high watermark, as long as there are no transactions."""
        return self.high_watermark

    @property
    def has_min_isr(self) -> bool:
        """Whether there are `min.insync.replicas` of them, this one included."""
        return 1 + len(self._isr_others) >= self.log.config.min_insync_replicas

    # What the controller decides

    def apply(self, image: PartitionImage) -> None:
        """Leads, follows or does neither from now on, as the metadata say."""
        assert image.leader_epoch >= self.leader_epoch, (self.topic_partition, image, self.leader_epoch)
        new_epoch = image.leader_epoch > self.leader_epoch
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self._isr_others = tuple(replica for replica in image.isr if replica != self._broker_id)
        if not self.is_leader:
            return
        if new_epoch:
            self._follower_end_offsets.clear()
            self._producers = None
        self.maybe_advance_high_watermark()

    def resign(self) -> None:
        """The topic is gone, or the log dir: nobody reads or writes here any more."""
        self.leader = NO_LEADER

    # What clients ask

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Raises NotLeaderOrFollowerError, and what KIP-320 says if the caller's epoch is not ours."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            error = _FencedLeaderEpochError if current_leader_epoch < self.leader_epoch else _UnknownLeaderEpochError
            raise error(f"{self.topic_partition}: leader epoch {current_leader_epoch}; here it is {self.leader_epoch}")
        if not self.is_leader:
            raise _NotLeaderOrFollowerError(f"{self.topic_partition} is not led by broker {self._broker_id}")

    def check_min_isr(self) -> None:
        """Raises NotEnoughReplicasError if acks=all cannot be kept."""
        if not self.has_min_isr:
            raise _NotEnoughReplicasError(
                f"{self.topic_partition}: {1 + len(self._isr_others)} replicas are in sync;"
                f" min.insync.replicas is {self.log.config.min_insync_replicas}"
            )

    def readable_end_offset(self, *, read_committed: bool) -> int:
        """One past the last record a consumer may have."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def append(self, records: memoryview, *, now_ms: int) -> tuple[AppendResult, bool]:
        """Appends a record set as the leader; returns where it is, and whether the high watermark moved.

        A batch that an idempotent producer sends again is not appended again. Raises as
        `PartitionLog.append_as_leader` and `ProducerStates.check`."""
        header = _idempotent_header(records)
        if header is None and self.topic_partition.topic in INTERNAL_TOPICS:
            # Coordinators write under the writer identity of their shard; anything else would damage it.
            raise ErrorCode.INVALID_TOPIC_EXCEPTION.exception(f"{self.topic_partition} is written by coordinators only")
        duplicate = self._duplicate_of(header, records, now_ms) if header is not None else None
        if duplicate is not None:
            return AppendResult(duplicate.base_offset, duplicate.last_offset, -1, self.log.log_start_offset), False
        appended = self.log.append_as_leader(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if header is not None:
            self._producer_states().note(header, base_offset=appended.base_offset, now_ms=now_ms)
        self._unreadable_bytes += len(records)
        return appended, self.maybe_advance_high_watermark()

    # Idempotent producers

    def _duplicate_of(self, header: BatchHeader, records: memoryview, now_ms: int) -> WrittenBatch | None:
        """The batch that this one repeats. Raises as `check_produced` and `ProducerStates.check`.

        The append checks the records anyway; before they are answered otherwise they are checked here, lest a producer
        is fenced, or told that its records are written, for what a damaged header says."""
        try:
            duplicate = self._producer_states().check(header)
        except BrokerError:
            check_produced(records, self.log.config, now_ms=now_ms, origin=AppendOrigin.CLIENT)
            raise
        if duplicate is not None:
            check_produced(records, self.log.config, now_ms=now_ms, origin=AppendOrigin.CLIENT)
        return duplicate

    def _producer_states(self) -> ProducerStates:
        """Read from the log when the first idempotent producer of this leadership writes: most topics have none."""
        if self._producers is None:
            self._producers = ProducerStates()
            for header in self.log.headers(self.log.log_start_offset):
                if header.producer_id >= 0 and not header.is_control:
                    self._producers.note(header, base_offset=header.base_offset, now_ms=header.max_timestamp_ms)
        return self._producers

    def expire_producers(self, *, older_than_ms: int) -> None:
        """Forgets idempotent producers that have not written since."""
        if self._producers is not None:
            self._producers.expire(older_than_ms=older_than_ms)

    # What moves the high watermark

    def on_follower_end_offset(self, replica: int, end_offset: int) -> bool:
        """A follower has everything before `end_offset`; returns whether the high watermark moved."""
        assert self.is_leader, self.topic_partition
        self._follower_end_offsets[replica] = end_offset
        return self.maybe_advance_high_watermark()

    def maybe_advance_high_watermark(self) -> bool:
        """To what every in-sync replica has; returns whether it moved."""
        log_end_offset = self.log.log_end_offset
        committed = committed_offset(log_end_offset, self._isr_others, self._follower_end_offsets)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        # Bytes are counted per append, so a watermark between two appends counts none of the later one's.
        if committed == log_end_offset:
            self.readable_bytes_total += self._unreadable_bytes
            self._unreadable_bytes = 0
        return True


def _idempotent_header(records: memoryview) -> BatchHeader | None:
    """The header of a record set with a producer id, or None. Raises InvalidRecordError for several batches."""
    try:
        headers = [header for _, header in iter_headers(records)]
    except CorruptBatchError:
        return None  # the append will say what is wrong with it
    if all(header.producer_id < 0 for header in headers):
        return None
    if len(headers) > 1:
        raise ErrorCode.INVALID_RECORD.exception(
            f"{len(headers)} batches in one record set; with a producer id there must be one"
        )
    return headers[0]
