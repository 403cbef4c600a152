"""Reads several partitions into one fetch answer.

`FetchReader.locate` decides what each partition returns, without touching record bytes. It checks leadership and range,
and finds the high watermark and the slice of a file that fits the bounds (KIP-74: at least one batch, if there is one
at all). If the reader's last record is not in the log, the answer has the diverging epoch instead (KIP-320). If the
reader is closer to a follower, the answer names that follower (KIP-392). `RecordReader` reads the bytes in the same
turn of the event loop, because the slices may be stale after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm_broker.log.files.storage_failure import LogDir
from klamm_broker.log.partition.log_segments import LocatedRecords
from klamm_broker.log.segment.transaction_index import AbortedTransaction
from klamm_broker.replica.delayed_fetch import AwaitedPartition
from klamm_broker.replica.follower_partition import LogEpochEnd
from klamm_broker.replica.leader_hint import leader_hint
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_selector import ReplicaSelector

_SECRETIVE = frozenset((ErrorCode.TOPIC_AUTHORIZATION_FAILED,))
"""Errors with which an answer contains no offsets."""


@dataclass(slots=True)
class FetchCursor:
    """A reader's position in one partition."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int
    """The most bytes to read, not negative."""
    current_leader_epoch: int = -1
    """The leader epoch that the reader knows, or -1 (KIP-320)."""
    last_fetched_epoch: int = -1
    """The leader epoch of the record before `offset`, or -1."""


@dataclass(slots=True)
class PartitionAnswer:
    """The answer to a reader about one partition. Offsets, ids and epochs that do not exist are -1."""

    topic_partition: TopicPartition
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    records_bytes: int = 0
    aborted_transactions: Sequence[AbortedTransaction] = ()
    """The aborted transactions that overlap these records, for readers with read_committed."""
    diverging: LogEpochEnd | None = None
    """Set, without records, if the reader's log diverges from this log (KIP-320)."""
    preferred_read_replica: int = -1
    """The broker that the reader should fetch from instead (KIP-392), without records. -1 to stay here."""
    current_leader: int = -1
    """The leader, if the error is because this broker does not lead under the reader's epoch (KIP-951)."""
    current_leader_epoch: int = -1
    caught_up: Partition | None = None
    """The partition, if the reader has everything, so that this answer stays the same until the partition changes."""


class ReaderTerms(NamedTuple):
    """The options of a fetch that apply to all its partitions."""

    read_committed: bool
    rack: str = ""
    """The reader's rack (KIP-392). With a rack, followers serve the reader, and leaders may name a closer replica. If
    it is empty, only leaders serve it."""


class LocatedSlice(NamedTuple):
    """The location of the records of one partition, with their log directory."""

    log_dir: LogDir
    where: LocatedRecords

    @property
    def size_bytes(self) -> int:
        return self.where.part.size_bytes


@dataclass(slots=True, kw_only=True)
class LocatedFetch:
    """The result of locating a fetch: one answer per cursor, and the locations of the records."""

    answers: list[PartitionAnswer]
    slices: list[LocatedSlice]
    """The locations of the answers' records, in the order of the answers. Answers without records have none."""
    awaited: list[AwaitedPartition]
    """The partitions without an error, as they were before this read. A fetch that waits checks them for new bytes.
    Some may be missing if there are enough records, because then the fetch does not wait."""
    size_bytes: int
    errors: list[BrokerError]
    is_urgent: bool = False
    """True if there is an error, a divergence or a closer replica, so that the answer must not wait."""


class FetchReader:
    """Locates records in this broker's replicas. `selector` chooses the replica that consumers should read from.
    Without it they read from the leader."""

    def __init__(self, replicas: ReplicaManager, selector: ReplicaSelector | None = None) -> None:
        self._replicas = replicas
        self._selector = selector

    def locate(
        self,
        cursors: Iterable[FetchCursor],
        max_bytes: int,
        terms: ReaderTerms,
        refused: AbstractSet[str] = frozenset(),
        located: LocatedFetch | None = None,
        *,
        wanted_bytes: int,
    ) -> LocatedFetch:
        """Locates the records for each of `cursors`. They have at most `max_bytes`, unless the first batch is larger.
        `refused` are the topics that the caller may not read. `located` is the result for earlier cursors of the same
        fetch, and gets the new ones as well. A fetch with `wanted_bytes` of records does not wait."""
        fetch = located or LocatedFetch(answers=[], slices=[], awaited=[], size_bytes=0, errors=[])
        for cursor in cursors:
            try:
                if refused and cursor.topic_partition.topic in refused:
                    raise ErrorCode.TOPIC_AUTHORIZATION_FAILED.exception()
                self._locate_one(fetch, cursor, max_bytes - fetch.size_bytes, terms, wanted_bytes)
            except BrokerError as error:
                fetch.is_urgent = True
                fetch.errors.append(error)
                fetch.answers.append(self._failed(cursor.topic_partition, error))
        return fetch

    def _locate_one(
        self, fetch: LocatedFetch, cursor: FetchCursor, free_bytes: int, terms: ReaderTerms, wanted_bytes: int
    ) -> None:
        partition = self._replicas.hosted(cursor.topic_partition)
        partition.check_reader(cursor.current_leader_epoch, cursor.offset, from_follower=bool(terms.rack))
        answer = PartitionAnswer(
            cursor.topic_partition,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log.log_start_offset,
        )
        if self._sends_elsewhere(answer, partition, cursor, terms):
            fetch.is_urgent = True
            fetch.answers.append(answer)
            return
        end_offset = partition.readable_end_offset(read_committed=terms.read_committed)
        located = partition.log.reader.locate(
            cursor.offset,
            max(0, min(cursor.max_bytes, free_bytes)),
            max_offset=end_offset,
            min_one=not fetch.size_bytes,
        )
        fetch.answers.append(answer)
        if located is not None and located.part.size_bytes:
            answer.records_bytes = located.part.size_bytes
            if terms.read_committed:
                answer.aborted_transactions = partition.log.reader.aborted_in(located, cursor.offset, end_offset)
            fetch.slices.append(LocatedSlice(partition.log.log_dir, located))
            fetch.size_bytes += located.part.size_bytes
        elif cursor.offset >= end_offset and not self._may_send_elsewhere(partition, terms):
            answer.caught_up = partition
        if fetch.size_bytes < wanted_bytes:
            fetch.awaited.append(AwaitedPartition(partition, read_committed=terms.read_committed))

    def _may_send_elsewhere(self, partition: Partition, terms: ReaderTerms) -> bool:
        """Returns True if a closer replica may exist now or later. Followers that progress do not change the
        partition."""
        return self._selector is not None and bool(terms.rack) and partition.is_leader

    def _sends_elsewhere(
        self, answer: PartitionAnswer, partition: Partition, cursor: FetchCursor, terms: ReaderTerms
    ) -> bool:
        """Returns True if the reader must continue at another offset or another replica, and sets it in the answer."""
        answer.diverging = partition.divergence(cursor.last_fetched_epoch, cursor.offset)
        if answer.diverging is not None:
            return True
        leadership = partition.leadership
        if self._selector is None or not terms.rack or leadership is None:
            return False
        closer = leadership.closer_replica(cursor.offset, partition.log.log_end_offset, terms.rack, self._selector)
        if closer is not None:
            answer.preferred_read_replica = closer
        return closer is not None

    def _failed(self, topic_partition: TopicPartition, error: BrokerError) -> PartitionAnswer:
        answer = PartitionAnswer(
            topic_partition,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1 if error.code in _SECRETIVE else self._log_start_offset(topic_partition),
            error_code=error.code,
            error_message=error.message,
        )
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._add_end(answer)
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            answer.current_leader, answer.current_leader_epoch = leader_hint(self._replicas, topic_partition)
        return answer

    def _add_end(self, answer: PartitionAnswer) -> None:
        """Adds the high watermark and last stable offset to the answer of a reader that is out of range."""
        partition = self._replicas.get(answer.topic_partition)
        if partition is not None:
            answer.high_watermark, answer.last_stable_offset = partition.high_watermark, partition.last_stable_offset

    def _log_start_offset(self, topic_partition: TopicPartition) -> int:
        """Returns the log start offset, where a reader that is out of range can continue, or -1 without a log."""
        partition = self._replicas.get(topic_partition)
        return -1 if partition is None else partition.log.log_start_offset
