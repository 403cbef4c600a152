"""Reads several partitions into one fetch answer.

`FetchReader.locate` decides, without touching record bytes, what each partition gives: leadership, range, high
watermark, and which slice of which file fits the bounds (KIP-74: at least one batch, if there is one at all). A reader
whose last record is not in the log, or who is closer to a follower, gets to know that instead (KIP-320, KIP-392).
The bytes are brought by `RecordReader`, in the same turn of the event loop: after it the slices may be stale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.wire.v1.broker_pb2 import AbortedTransaction, FetchedPartition, FetchPartition
from klamm_broker.log.partition_log import LocatedRecords
from klamm_broker.log.storage_failure import LogDir
from klamm_broker.replica.delayed_fetch import AwaitedPartition
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_selector import ReplicaSelector


@dataclass(slots=True, kw_only=True)
class FetchCursor:
    """Where one reader stands in one partition."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    """Of the record before `offset`, or -1."""

    @classmethod
    def of(cls, wanted: FetchPartition) -> FetchCursor:
        return cls(
            topic_partition=TopicPartition(wanted.topic, wanted.partition),
            offset=wanted.fetch_offset,
            max_bytes=max(0, wanted.max_bytes),
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
        )


class ReaderTerms(NamedTuple):
    """What a reader asks of every partition."""

    read_committed: bool
    rack: str = ""
    """Where it is: a follower serves it, and a leader may name one that is closer. Empty: it reads from leaders."""


class LocatedSlice(NamedTuple):
    """Records of one partition."""

    log_dir: LogDir
    where: LocatedRecords

    @property
    def size_bytes(self) -> int:
        return self.where.part.size_bytes


@dataclass(slots=True, kw_only=True)
class LocatedFetch:
    """What a fetch finds: one answer per cursor, and where its records are."""

    answers: list[FetchedPartition]
    slices: list[LocatedSlice]
    """Of the answers with records, in their order."""
    awaited: list[AwaitedPartition]
    """Of the partitions without error, as they were before this read."""
    size_bytes: int
    errors: list[BrokerError]
    is_urgent: bool = False
    """There is an error, a divergence or a closer replica: the reader should know at once."""


class FetchReader:
    """Reads from this broker's replicas. `selector`: which replica consumers should read from; None: the leader."""

    def __init__(self, replicas: ReplicaManager, selector: ReplicaSelector | None = None) -> None:
        self._replicas = replicas
        self._selector = selector

    def locate(self, cursors: Iterable[FetchCursor], max_bytes: int, terms: ReaderTerms) -> LocatedFetch:
        """What there is for each of `cursors`, at most `max_bytes` unless the first batch is larger."""
        fetch = LocatedFetch(answers=[], slices=[], awaited=[], size_bytes=0, errors=[])
        for cursor in cursors:
            try:
                self._locate_one(fetch, cursor, max_bytes - fetch.size_bytes, terms)
            except BrokerError as error:
                fetch.is_urgent = True
                fetch.errors.append(error)
                fetch.answers.append(self._failed(cursor, error))
        return fetch

    def _locate_one(self, fetch: LocatedFetch, cursor: FetchCursor, room_bytes: int, terms: ReaderTerms) -> None:
        partition = self._replicas.hosted(cursor.topic_partition)
        partition.check_reader(cursor.current_leader_epoch, cursor.offset, from_follower=bool(terms.rack))
        answer = FetchedPartition(
            topic=cursor.topic_partition.topic,
            partition=cursor.topic_partition.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
        )
        if self._sends_elsewhere(answer, partition, cursor, terms):
            fetch.is_urgent = True
            fetch.answers.append(answer)
            return
        end_offset = partition.readable_end_offset(read_committed=terms.read_committed)
        located = partition.log.locate(
            cursor.offset,
            max(0, min(cursor.max_bytes, room_bytes)),
            max_offset=end_offset,
            min_one=not fetch.size_bytes,
        )
        fetch.awaited.append(AwaitedPartition(partition, read_committed=terms.read_committed))
        fetch.answers.append(answer)
        if located is not None and located.part.size_bytes:
            answer.records_bytes = located.part.size_bytes
            if terms.read_committed:
                answer.aborted_transactions.extend(
                    AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                    for one in partition.log.aborted_in(located, cursor.offset, end_offset)
                )
            fetch.slices.append(LocatedSlice(partition.log.log_dir, located))
            fetch.size_bytes += located.part.size_bytes

    def _sends_elsewhere(
        self, answer: FetchedPartition, partition: Partition, cursor: FetchCursor, terms: ReaderTerms
    ) -> bool:
        """Whether the reader is to read another offset, or another replica; then the answer says so."""
        diverging = partition.divergence(cursor.last_fetched_epoch, cursor.offset)
        if diverging is not None:
            answer.diverging.epoch, answer.diverging.end_offset = diverging
            return True
        if self._selector is None or not terms.rack:
            return False
        closer = partition.closer_replica(cursor.offset, terms.rack, self._selector)
        if closer is not None:
            answer.preferred_read_replica = closer
        return closer is not None

    def _failed(self, cursor: FetchCursor, error: BrokerError) -> FetchedPartition:
        topic_partition = cursor.topic_partition
        answer = FetchedPartition(
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            error_code=error.code,
            error_message=error.message,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=self._log_start_offset(topic_partition),
            current_leader=-1,
            current_leader_epoch=-1,
        )
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            answer.current_leader, answer.current_leader_epoch = self._replicas.leader_hint(topic_partition)
        return answer

    def _log_start_offset(self, topic_partition: TopicPartition) -> int:
        """Tells a reader that is out of range where it could go on; -1 when there is no log."""
        partition = self._replicas.get(topic_partition)
        return -1 if partition is None else partition.log.log_start_offset
