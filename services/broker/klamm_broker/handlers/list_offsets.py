"""ListOffsets: finds the earliest or latest offset, the offset of a timestamp, or the offset of the largest timestamp
(KIP-734).

Klamm has no tiered storage, so the earliest local offset is the earliest offset, and no segment waits for an upload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TopicPartition,
)
from klamm_broker.handlers.isolation import reads_committed
from klamm_broker.handlers.topic_rights import require_topic
from klamm_broker.io import metrics
from klamm_broker.io.record_thread import RecordThread
from klamm_broker.log.partition.log_reader import LogReader
from klamm_broker.log.segment.check_budget import CheckBudget, OverBudgetError
from klamm_broker.log.segment.time_search import OpenSearch, TimestampHit
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.security.needs import DESCRIBE_TOPIC

ResultT = TypeVar("ResultT")

_NOT_FOUND = (-1, -1, -1)


class OffsetQuery(NamedTuple):
    """The partition and the timestamp whose offset is requested. Negative timestamps are Kafka's special values."""

    topic: str
    partition: int
    timestamp_ms: int
    current_leader_epoch: int = -1


class ListedOffset(NamedTuple):
    """The answer for one partition. A field is -1 if it has no value."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class LateLookup(NamedTuple):
    """A lookup by time that would take the event loop too long, because it must read many records."""

    query: OffsetQuery
    end_offset: int
    """The offset after the last record that the client may read."""


class ListOffsetsHandler:
    """Handles ListOffsets requests of both protocols."""

    def __init__(self, replicas: ReplicaManager, thread: RecordThread) -> None:
        self._replicas = replicas
        self._thread = thread

    def list_offsets(
        self, queries: Iterable[OffsetQuery], *, isolation_level: int, budget: CheckBudget | None = None
    ) -> list[ListedOffset | LateLookup]:
        """Returns one answer per query, in the same order. The caller hands lookups that are late to `finish`. If it
        asks for one request several times, all share a `budget`. Raises InvalidRequestError for an unknown isolation
        level."""
        read_committed = reads_committed(isolation_level)
        budget = budget or CheckBudget()
        return [self._list(query, read_committed, budget) for query in queries]

    async def finish(self, answers: Sequence[ListedOffset | LateLookup]) -> list[ListedOffset]:
        """Returns the answers with those of late lookups, which a thread looks up one by one."""
        return [await self._look_up(answer) if isinstance(answer, LateLookup) else answer for answer in answers]

    def _list(self, wanted: OffsetQuery, read_committed: bool, budget: CheckBudget) -> ListedOffset | LateLookup:
        try:
            require_topic(DESCRIBE_TOPIC, wanted.topic)
            partition = self._leader(wanted)
            end_offset = partition.readable_end_offset(read_committed=read_committed)
            try:
                found = _find(partition, wanted.timestamp_ms, end_offset, budget)
            except OverBudgetError:
                return LateLookup(wanted, end_offset)
        except BrokerError as error:
            return _refused(wanted, error)
        return _listed(wanted, found)

    async def _look_up(self, late: LateLookup) -> ListedOffset:
        wanted = late.query
        try:
            hit = await self._find_late(self._leader(wanted).log.reader, wanted.timestamp_ms)
            # The leader may have moved in the meantime, and its records may have been truncated here.
            return _listed(wanted, _readable(self._leader(wanted), hit, late.end_offset))
        except BrokerError as error:
            return _refused(wanted, error)

    async def _find_late(self, reader: LogReader, timestamp_ms: int) -> TimestampHit | None:
        if timestamp_ms == MAX_TIMESTAMP:
            timestamp_ms = await self._find_largest(reader)
        offset = 0
        while (search := reader.open_time_search(timestamp_ms, offset)) is not None:
            hit = await self._run(reader, search)
            if hit is not None:
                return hit
            offset = search.end_offset
        return None

    async def _find_largest(self, reader: LogReader) -> int:
        search = reader.open_largest_search()
        if search is None:
            return reader.max_timestamp_ms(None)
        in_first_ms: int = await self._run(reader, search)
        return reader.max_timestamp_ms(in_first_ms)

    async def _run(self, reader: LogReader, search: OpenSearch[ResultT]) -> ResultT:
        """Runs a search on the thread. Raises LogDirFailure and CorruptBatchError."""
        try:
            return await self._thread.begin(search.run)
        except OSError as error:
            raise reader.failed(error) from error
        finally:
            # The client may have gone before the search began.
            search.close()

    def _leader(self, wanted: OffsetQuery) -> Partition:
        return self._replicas.leader(TopicPartition(wanted.topic, wanted.partition), wanted.current_leader_epoch)


def _listed(wanted: OffsetQuery, found: tuple[int, int, int]) -> ListedOffset:
    timestamp_ms, offset, leader_epoch = found
    return ListedOffset(
        wanted.topic, wanted.partition, offset=offset, timestamp_ms=timestamp_ms, leader_epoch=leader_epoch
    )


def _refused(wanted: OffsetQuery, error: BrokerError) -> ListedOffset:
    metrics.on_error("list_offsets", error.code)
    return ListedOffset(wanted.topic, wanted.partition, error.code, error.message)


def _find(partition: Partition, timestamp_ms: int, end_offset: int, budget: CheckBudget) -> tuple[int, int, int]:
    """Returns (timestamp in milliseconds, offset, leader epoch). A value is -1 if there is none.

    Raises BrokerError, and OverBudgetError if the lookup needs more than `budget`."""
    if timestamp_ms == LATEST_TIMESTAMP:
        partition.check_high_watermark()
        return -1, end_offset, partition.leader_epoch
    if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return partition.log.reader.earliest()
    if timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _NOT_FOUND
    if timestamp_ms == MAX_TIMESTAMP:
        hit = partition.log.reader.find_max_timestamp(budget)
    elif timestamp_ms >= 0:
        hit = partition.log.reader.find_timestamp(timestamp_ms, budget)
    else:
        raise ErrorCode.INVALID_REQUEST.exception(
            f"timestamp is {timestamp_ms}; expected 0 or more, or a special value from -1 (latest) to -6"
        )
    return _readable(partition, hit, end_offset)


def _readable(partition: Partition, hit: TimestampHit | None, end_offset: int) -> tuple[int, int, int]:
    """Returns the hit, or nothing if the client may not read it yet, because it could not fetch it."""
    if hit is not None and hit.offset < end_offset:
        return hit
    partition.check_high_watermark()
    return _NOT_FOUND
