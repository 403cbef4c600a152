"""One partition replica on this broker: its role, its leader epoch and its high watermark.

Kafka's `kafka.cluster.Partition` (KIP-101, 320, 497, 966). The log stores records. The partition decides which clients
and followers may read and write, and up to which offset. Event loop only: no call waits, and no lock is needed. The
partition uses the log's members in `ReplicaLog`, its methods that append, and its queries for transactions.

Invariants: the high watermark moves back only when a follower's log is truncated below it. Log start <= last stable
offset <= high watermark <= log end. The leader epoch, the partition epoch and the totals of `bytes` only grow.
"""

from __future__ import annotations

from typing import NamedTuple

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import AUDIT_TOPIC, INTERNAL_TOPICS, NO_LEADER_EPOCH, TopicId, TopicPartition
from klamm.records.header import BatchHeader
from klamm_broker.log.partition.partition_log import (
    AppendRequest,
    AppendResult,
    ClientAppend,
    PartitionLog,
    ShardAppend,
)
from klamm_broker.log.producers.verification import VerificationGuard
from klamm_broker.replica.follower_partition import FollowerPartition, FollowerUpdate, LeaderAnswer, LogEpochEnd
from klamm_broker.replica.leadership import Brokers, FollowerFetch, IsrChange, Leadership
from klamm_broker.replica.readable_bytes import PartitionBytes
from klamm_server.metadata.entities import NO_LEADER, PartitionImage

_FencedLeaderEpochError = EXCEPTIONS[ErrorCode.FENCED_LEADER_EPOCH]
_InvalidTopicError = EXCEPTIONS[ErrorCode.INVALID_TOPIC_EXCEPTION]
_NotEnoughReplicasError = EXCEPTIONS[ErrorCode.NOT_ENOUGH_REPLICAS]
_NotLeaderOrFollowerError = EXCEPTIONS[ErrorCode.NOT_LEADER_OR_FOLLOWER]
_OffsetNotAvailableError = EXCEPTIONS[ErrorCode.OFFSET_NOT_AVAILABLE]
_OffsetOutOfRangeError = EXCEPTIONS[ErrorCode.OFFSET_OUT_OF_RANGE]
_UnknownLeaderEpochError = EXCEPTIONS[ErrorCode.UNKNOWN_LEADER_EPOCH]

MARKER_SIZE_BYTES = 78
"""The size of a control batch: header, and a record with a key of 4 bytes and a value of 6."""

_NOT_TRIED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Errors with which the controller did not try the change, so that the committed set stays valid."""
_OVERTAKEN = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors because the partition's state has changed, perhaps by this same change. The metadata with the new state will
follow."""


class PartitionEffects(NamedTuple):
    """The effects of a change that `ReplicaManager` must tell its observer."""

    high_watermark_moved: bool = False
    """True if requests that wait for records must be woken."""
    log_start_moved: bool = False
    """True if requests that wait for a deletion of records must be woken."""
    isr_change: IsrChange | None = None
    """The change to send to the controller."""


class CommittedIsr(NamedTuple):
    """The state of a partition after a change of its in-sync set."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class FetchOutcome(NamedTuple):
    """The result of a follower's fetch at the leader."""

    effects: PartitionEffects
    diverging: LogEpochEnd | None
    """Set if the follower's log diverges from the leader's. Then the fetch has no other effect."""


NO_EFFECTS = PartitionEffects()


class Partition:
    """A partition replica. While it leads, it has `leadership`; while it follows, it has `following`.

    Times are monotonic unless their name is `wall_ms`."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: PartitionLog,
        *,
        topic_id: TopicId,
        broker_id: int,
        high_watermark: int,
        brokers: Brokers,
        lag_time_max_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self._broker_id = broker_id
        self._brokers = brokers
        self._lag_time_max_ms = lag_time_max_ms
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.image: PartitionImage | None = None
        """The newest state, from the metadata or from the controller's answer to a change."""
        self.leadership: Leadership | None = None
        self.following: FollowerPartition | None = None
        self.high_watermark = high_watermark
        log.commit(high_watermark)
        self.bytes = PartitionBytes()

    @property
    def is_leader(self) -> bool:
        return self.leadership is not None

    @property
    def has_leader(self) -> bool:
        """True if this replica leads, or follows a leader."""
        return self.leadership is not None or self.following is not None

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed consumers may read. All transactions before it are decided and
        committed (KIP-98)."""
        first_unstable = self.log.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log.log_start_offset)

    @property
    def has_min_isr(self) -> bool:
        """True if this replica leads and enough replicas are in sync, by the in-sync set that the controller
        committed."""
        leadership = self.leadership
        if leadership is None:
            return False
        in_sync = len(leadership.isr)
        return in_sync >= self.log.config.min_insync_replicas or in_sync >= leadership.replica_count

    # State from the controller

    def apply(self, image: PartitionImage, *, now_ms: int) -> PartitionEffects:
        """Makes the replica lead, follow, or do neither, as the metadata say. Ignores an image that is older than the
        known state."""
        assert image.leader_epoch >= self.leader_epoch, (self.topic_partition, image, self.leader_epoch)
        if image.partition_epoch < self.partition_epoch:
            return NO_EFFECTS
        new_epoch = image.leader_epoch > self.leader_epoch
        self.image = image
        self.leader, self.leader_epoch = image.leader, image.leader_epoch
        self.partition_epoch = image.partition_epoch
        if image.leader == self._broker_id:
            self.following = None
            if new_epoch or self.leadership is None:
                self.leadership = Leadership(
                    broker_id=self._broker_id,
                    leader_epoch=image.leader_epoch,
                    start_offset=self.log.log_end_offset,
                    brokers=self._brokers,
                )
            self.leadership.commit(image, now_ms=now_ms)
            return self.review()
        self.leadership = None
        if image.leader == NO_LEADER:
            self.following = None
        elif new_epoch or self.following is None:
            self.following = FollowerPartition(self.log, leader_epoch=image.leader_epoch)
        if new_epoch:
            self.bytes.forget()
        return NO_EFFECTS

    def resign(self) -> None:
        """Ends leading and following, because the topic was deleted, the log directory failed or the broker stops.
        Afterwards, clients cannot read or write here."""
        self.leader = NO_LEADER
        self.leadership = self.following = None

    def replace_log(self, log: PartitionLog) -> None:
        """Continues with an equal log in another log directory."""
        assert log.log_end_offset == self.log.log_end_offset, (log.log_end_offset, self.log.log_end_offset)
        self.log = log
        if self.following is not None:
            self.following.replace_log(log)

    # Requests of clients

    def check_leader(self, current_leader_epoch: int = -1) -> Leadership:
        """Returns the leadership. Raises NotLeaderOrFollowerError, or FencedLeaderEpochError or UnknownLeaderEpochError
        if the caller's epoch differs (KIP-320)."""
        if current_leader_epoch != NO_LEADER_EPOCH:
            self._check_epoch(current_leader_epoch)
        if self.leadership is None:
            raise _NotLeaderOrFollowerError(f"{self.topic_partition} is not led by broker {self._broker_id}")
        return self.leadership

    def _check_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            error = _FencedLeaderEpochError if current_leader_epoch < self.leader_epoch else _UnknownLeaderEpochError
            raise error(
                f"{self.topic_partition}: the request has leader epoch {current_leader_epoch}; expected"
                f" {self.leader_epoch}"
            )

    def check_reader(self, current_leader_epoch: int, fetch_offset: int, *, from_follower: bool) -> None:
        """Checks that a consumer may read here. A follower serves consumers that send their rack (KIP-392).

        Raises as `check_leader`, and OffsetNotAvailableError while the follower lacks the offset that the leader may
        have."""
        following = self.following
        if following is None or not from_follower:
            self.check_leader(current_leader_epoch)
            return
        self._check_epoch(current_leader_epoch)
        # Before the leader has confirmed the log, its records may differ from the leader's.
        if not following.agrees or fetch_offset > self.log.log_end_offset:
            raise _OffsetNotAvailableError(
                f"{self.topic_partition}: broker {self._broker_id} does not have offset {fetch_offset} yet, because the"
                f" replica has followed broker {self.leader} only up to {self.log.log_end_offset}"
            )

    def check_min_isr(self) -> None:
        """Raises NotEnoughReplicasError if fewer than `min.insync.replicas` replicas are in sync."""
        if not self.has_min_isr:
            in_sync = 0 if self.leadership is None else len(self.leadership.isr)
            raise _NotEnoughReplicasError(
                f"{self.topic_partition}: {in_sync} replicas are in sync;"
                f" expected at least min.insync.replicas={self.log.config.min_insync_replicas}"
            )

    def check_high_watermark(self) -> None:
        """Raises OffsetNotAvailableError until a new leader knows all offsets that earlier leaders committed.

        Until the high watermark reaches the start of the leader epoch, the offsets that clients see could go back."""
        leadership = self.leadership
        if leadership is not None and self.high_watermark < leadership.start_offset:
            raise _OffsetNotAvailableError(
                f"{self.topic_partition}: the high watermark is {self.high_watermark}; leader epoch"
                f" {self.leader_epoch} began at {leadership.start_offset}"
            )

    def readable_end_offset(self, *, read_committed: bool) -> int:
        """Returns the offset after the last record that a consumer may read."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def epoch_end(self, epoch: int) -> LogEpochEnd:
        """Returns the greatest epoch of this log that is not above `epoch`, and its end offset. Returns (-1, -1) for a
        future epoch."""
        log_end_offset = self.log.log_end_offset
        if epoch == self.leader_epoch:
            return LogEpochEnd(epoch, log_end_offset)
        latest_epoch = self.log.epochs.latest_epoch
        if latest_epoch < epoch < self.leader_epoch:
            # The log has no records of that epoch or later. Epochs without records have no entry.
            return LogEpochEnd(latest_epoch, log_end_offset)
        return LogEpochEnd(*self.log.epochs.end_offset_for(epoch, log_end_offset))

    def append(self, request: AppendRequest, *, now_ms: int) -> tuple[AppendResult, bool]:
        """Appends what a client, a coordinator or the end of a transaction wants to write. Returns the result, and
        whether the high watermark moved. `now_ms` is the wall clock's time.

        Batches that an idempotent producer sends again are not appended again. Raises as the log's `append_as_leader`,
        `append_as_coordinator` and `append_marker`. Also raises InvalidTopicError: only the coordinator that owns a
        shard writes to a partition of an internal topic, and it writes the markers there itself. Any server may append
        to the audit topic."""
        if isinstance(request, ClientAppend):
            if self.topic_partition.topic in INTERNAL_TOPICS:
                raise _coordinators_only(self.topic_partition)
            records, guard, budget = request
            appended = self.log.append_as_leader(
                records, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard, budget=budget
            )
            return appended, self._count(appended, len(records))
        if isinstance(request, ShardAppend):
            return self._append_for_shard(request, now_ms)
        if self.topic_partition.topic in INTERNAL_TOPICS:
            raise _InvalidTopicError(
                f"{self.topic_partition} is internal: only the coordinator that owns the partition writes markers there"
            )
        appended = self.log.append_marker(request, leader_epoch=self.leader_epoch, now_ms=now_ms)
        return appended, self._count(appended, MARKER_SIZE_BYTES)

    def _append_for_shard(self, request: ShardAppend, now_ms: int) -> tuple[AppendResult, bool]:
        records, writer = request
        topic = self.topic_partition.topic
        if topic not in INTERNAL_TOPICS:
            raise _InvalidTopicError(f"{self.topic_partition} is not a partition that a coordinator writes to")
        if topic == AUDIT_TOPIC:
            # The audit topic has no owner, because every server writes to it.
            appended = self.log.append_as_leader(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        else:
            appended = self.log.append_as_coordinator(
                records, writer=writer, leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        return appended, self._count(appended, len(records))

    def begin_verification(self, header: BatchHeader, *, now_ms: int) -> VerificationGuard | None:
        """Begins the verification of a transaction (`LogProducers.begin_verification`). Raises InvalidTopicError for an
        internal topic."""
        if self.topic_partition.topic in INTERNAL_TOPICS:
            raise _coordinators_only(self.topic_partition)
        return self.log.producers.begin_verification(header, now_ms=now_ms)

    def _count(self, appended: AppendResult, size_bytes: int) -> bool:
        """Counts the bytes of an append. Returns True if the high watermark moved."""
        if appended.is_duplicate:
            return False
        end_offset = appended.last_offset + 1
        self.bytes.note(end_offset, size_bytes, is_unstable=self.log.first_unstable_offset is not None)
        if self.leadership is not None and not self.leadership.followers:
            # A shortcut for the common case of a single replica.
            if self.log.flusher.owes_sync:
                return False
            self._commit(end_offset)
            return True
        return self.maybe_advance_high_watermark()

    def _commit(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.log.commit(high_watermark)
        self.bytes.readable.reach(high_watermark)
        if self.bytes.stable is not None:
            self.bytes.stable.reach(self.last_stable_offset)

    # Requests of followers, and the high watermark

    def on_follower_fetch(self, fetch: FollowerFetch, *, now_ms: int) -> FetchOutcome:
        """Records the position of a follower's fetch, unless the follower's log diverges from this log.

        Raises as `check_leader` and `Leadership.on_fetch`, and OffsetOutOfRangeError."""
        leadership = self.check_leader(fetch.current_leader_epoch)
        log = self.log
        if fetch.fetch_offset < log.log_start_offset:
            raise _out_of_range(self.topic_partition, fetch, log)
        diverging = self.divergence(fetch.last_fetched_epoch, fetch.fetch_offset)
        if diverging is not None:
            return FetchOutcome(NO_EFFECTS, diverging)
        if fetch.fetch_offset > log.log_end_offset:
            raise _out_of_range(self.topic_partition, fetch, log)
        known = leadership.followers.get(fetch.replica_id)
        log_start_moved = known is not None and known.log_start_offset != fetch.log_start_offset
        leadership.on_fetch(
            fetch, log_end_offset=log.log_end_offset, now_ms=now_ms, lag_time_max_ms=self._lag_time_max_ms
        )
        effects = self.review()
        return FetchOutcome(effects._replace(log_start_moved=log_start_moved), None)

    def divergence(self, last_fetched_epoch: int, fetch_offset: int) -> LogEpochEnd | None:
        """Returns where the logs diverge, if this log does not have the record of `last_fetched_epoch` before
        `fetch_offset`. Otherwise returns None (KIP-595).

        If the follower or consumer knows no epoch (-1), the logs count as equal."""
        if last_fetched_epoch == NO_LEADER_EPOCH:
            return None
        end = self.epoch_end(last_fetched_epoch)
        if end.epoch == NO_LEADER_EPOCH:
            end = LogEpochEnd(NO_LEADER_EPOCH, self.log.log_end_offset)
            return end if end.end_offset < fetch_offset else None
        agrees = end.epoch == last_fetched_epoch and end.end_offset >= fetch_offset
        return None if agrees else end

    def maybe_advance_high_watermark(self) -> bool:
        """Moves the high watermark to the offset that all `waited_for` followers have reached, if enough replicas are
        in sync. Does not pass what this replica may acknowledge. Returns True if it moved."""
        leadership = self.leadership
        if leadership is None:
            return False
        committed = leadership.committed_offset(self.log.flusher.acknowledgeable_offset)
        if committed <= self.high_watermark or not self.has_min_isr:
            return False
        self._commit(committed)
        return True

    # The in-sync set

    def review(self) -> PartitionEffects:
        """Moves the high watermark, and proposes replicas that may join the in-sync set. Called after every change."""
        moved = self.maybe_advance_high_watermark()
        if self.leadership is None:
            return NO_EFFECTS
        return PartitionEffects(
            high_watermark_moved=moved, isr_change=self.leadership.maybe_expand(self.high_watermark)
        )

    def check_lag(self, *, now_ms: int) -> PartitionEffects:
        """Proposes to remove lagging followers from the in-sync set. Called every half of `replica.lag.time.max.ms`."""
        if self.leadership is None:
            return NO_EFFECTS
        change = self.leadership.maybe_shrink(
            log_end_offset=self.log.log_end_offset, now_ms=now_ms, lag_time_max_ms=self._lag_time_max_ms
        )
        effects = self.review()
        return effects if change is None else effects._replace(isr_change=change)

    def is_pending(self, change: IsrChange) -> bool:
        """Returns True while the change waits for the controller's answer."""
        return self.leadership is not None and self.leadership.pending is change

    def on_isr_committed(self, change: IsrChange, committed: CommittedIsr, *, now_ms: int) -> PartitionEffects:
        """Applies the partition's state from the controller's answer to a change.

        Only a newer partition epoch ends the change. If the answer has another leader epoch, the metadata will follow.
        """
        is_news = committed.leader_epoch == self.leader_epoch and committed.partition_epoch > self.partition_epoch
        if not self.is_pending(change) or not is_news:
            return NO_EFFECTS
        assert self.image is not None
        image = self.image._replace(isr=committed.isr, partition_epoch=committed.partition_epoch)
        return self.apply(image, now_ms=now_ms)

    def on_isr_refused(self, change: IsrChange, code: ErrorCode) -> PartitionEffects:
        """Handles a change that the controller refused, or whose outcome is unknown. An unknown outcome is proposed
        again."""
        if not self.is_pending(change) or code in _OVERTAKEN:
            return NO_EFFECTS
        assert self.leadership is not None
        if code in _NOT_TRIED:
            self.leadership.refuse(change)
            return PartitionEffects(high_watermark_moved=self.maybe_advance_high_watermark())
        return PartitionEffects(isr_change=change)

    # Following a leader

    def on_leader_answer(self, answer: LeaderAnswer, *, wall_ms: int) -> FollowerUpdate:
        """Applies the leader's answer. Raises as `FollowerPartition.on_answer`."""
        assert self.following is not None, self.topic_partition
        log_end_offset = self.log.log_end_offset
        update = self.following.on_answer(answer, high_watermark=self.high_watermark, now_ms=wall_ms)
        if update.truncated_from is not None:
            self.bytes.forget()
        elif self.log.log_end_offset > log_end_offset:
            is_unstable = self.log.first_unstable_offset is not None
            self.bytes.note(self.log.log_end_offset, len(answer.records), is_unstable=is_unstable)
        self._commit(update.high_watermark)
        return update


def _coordinators_only(topic_partition: TopicPartition) -> Exception:
    """Returns the error for writes of clients to an internal topic. Coordinators write there with the writer identity
    of their shard, and other records would damage it."""
    writers = "servers" if topic_partition.topic == AUDIT_TOPIC else "coordinators"
    return _InvalidTopicError(f"{topic_partition} is written by {writers} only")


def _out_of_range(topic_partition: TopicPartition, fetch: FollowerFetch, log: PartitionLog) -> Exception:
    return _OffsetOutOfRangeError(
        f"{topic_partition}: broker {fetch.replica_id} fetches offset {fetch.fetch_offset}; expected"
        f" {log.log_start_offset} to {log.log_end_offset}"
    )
