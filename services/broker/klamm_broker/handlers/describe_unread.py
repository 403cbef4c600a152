"""DescribeUnread: returns which records of partitions a reader has still to read: how many, since when, until when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klamm.errors import BrokerError, ErrorCode
from klamm.model import NO_PRODUCER_ID, TopicPartition
from klamm_broker.handlers.topic_rights import require_topic
from klamm_broker.io import metrics
from klamm_broker.io.record_thread import RecordThread
from klamm_broker.log.segment.check_budget import CheckBudget
from klamm_broker.log.segment.time_search import OpenSearch
from klamm_broker.log.segment.unread_search import UnreadFound
from klamm_broker.replica.partition import Partition
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.security.needs import DESCRIBE_TOPIC

SEARCHES_AT_ONCE: Final = 32
"""The most searches of one request that have a file descriptor at the same time."""


class ReaderPosition(NamedTuple):
    """The position of a reader: the offset of the next record to read."""

    topic: str
    partition: int
    offset: int


class HoldingTransaction(NamedTuple):
    """The open transaction that ends the records for readers with read_committed."""

    producer_id: int
    """-1 if the transaction has ended and its marker is not replicated yet."""
    first_offset: int
    first_timestamp_ms: int = -1


class UnreadRecords(NamedTuple):
    """The answer for one position. A time is -1 if there is none."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str = ""
    log_start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    record_count: int = 0
    next_timestamp_ms: int = -1
    next_deletion_ms: int = -1
    held_by: HoldingTransaction | None = None


class _Begun(NamedTuple):
    """An answer whose searches are not run yet."""

    answer: UnreadRecords
    unread: OpenSearch[UnreadFound] | None
    holding: OpenSearch[UnreadFound] | None


class DescribeUnreadHandler:
    """Handles DescribeUnread requests. `wall_ms` returns the time of the wall clock."""

    def __init__(self, replicas: ReplicaManager, thread: RecordThread, wall_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._thread = thread
        self._wall_ms = wall_ms

    async def describe_unread(self, positions: Sequence[ReaderPosition]) -> list[UnreadRecords]:
        """Returns one answer per position, in the same order."""
        answers: list[UnreadRecords] = []
        for start in range(0, len(positions), SEARCHES_AT_ONCE):
            answers += await self._describe(positions[start : start + SEARCHES_AT_ONCE])
            await asyncio.sleep(0)
        return answers

    async def _describe(self, positions: Sequence[ReaderPosition]) -> list[UnreadRecords]:
        begun = [self._begin(position) for position in positions]
        searches = [
            part_search for part in begun for part_search in (part.unread, part.holding) if part_search is not None
        ]
        if not searches:
            return [part.answer for part in begun]
        results: dict[int, UnreadFound | BrokerError] = {}
        try:
            await self._thread.begin(lambda budget: _run_all(searches, results, budget))
        finally:
            # The client may have gone before the searches began.
            for search in searches:
                search.close()
        return [self._finish(part, results) for part in begun]

    def _begin(self, wanted: ReaderPosition) -> _Begun:
        try:
            require_topic(DESCRIBE_TOPIC, wanted.topic)
            partition = self._replicas.leader(TopicPartition(wanted.topic, wanted.partition))
            return self._searches(wanted, partition)
        except BrokerError as error:
            return _Begun(_refused(wanted, error), None, None)

    def _searches(self, wanted: ReaderPosition, partition: Partition) -> _Begun:
        log = partition.log
        start_offset, end_offset = log.log_start_offset, partition.high_watermark
        stable_offset = partition.last_stable_offset
        next_offset = max(wanted.offset, start_offset)
        answer = UnreadRecords(
            wanted.topic,
            wanted.partition,
            log_start_offset=start_offset,
            high_watermark=end_offset,
            last_stable_offset=stable_offset,
            record_count=max(0, end_offset - next_offset),
        )
        unread = log.reader.open_unread_search(next_offset, end_offset) if next_offset < end_offset else None
        if stable_offset == end_offset:
            return _Begun(answer, unread, None)
        producer_id = log.producers.earliest_open_producer_id()
        held_by = HoldingTransaction(NO_PRODUCER_ID if producer_id is None else producer_id, stable_offset)
        try:
            holding = log.reader.open_unread_search(stable_offset, stable_offset + 1)
        except BaseException:
            if unread is not None:
                unread.close()
            raise
        return _Begun(answer._replace(held_by=held_by), unread, holding)

    def _finish(self, begun: _Begun, results: dict[int, UnreadFound | BrokerError]) -> UnreadRecords:
        answer = begun.answer
        for search in (begun.unread, begun.holding):
            failed = results.get(id(search))
            if isinstance(failed, BrokerError):
                return _refused(ReaderPosition(answer.topic, answer.partition, -1), failed)
        found, held = results.get(id(begun.unread)), results.get(id(begun.holding))
        if isinstance(held, UnreadFound) and answer.held_by is not None:
            answer = answer._replace(held_by=answer.held_by._replace(first_timestamp_ms=held.next_timestamp_ms))
        if not isinstance(found, UnreadFound):
            return answer
        rest = max(0, answer.high_watermark - found.next_offset)
        count = found.record_count + rest
        if not count:
            return answer._replace(record_count=0)
        return answer._replace(
            record_count=count,
            next_timestamp_ms=found.next_timestamp_ms,
            next_deletion_ms=self._deletion_ms(answer, answer.high_watermark - count),
        )

    def _deletion_ms(self, answer: UnreadRecords, next_offset: int) -> int:
        try:
            log = self._replicas.leader(TopicPartition(answer.topic, answer.partition)).log
            due_ms = log.retention.forecast_deletion_ms(next_offset, now_ms=self._wall_ms())
        except BrokerError:
            return -1
        return -1 if due_ms is None else due_ms


def _run_all(
    searches: Sequence[OpenSearch[UnreadFound]], results: dict[int, UnreadFound | BrokerError], budget: CheckBudget
) -> None:
    """Runs the searches without a result. If they take the first thread too long, a second one continues here."""
    for search in searches:
        if id(search) not in results:
            results[id(search)] = _run(search, budget)


def _run(search: OpenSearch[UnreadFound], budget: CheckBudget) -> UnreadFound | BrokerError:
    try:
        return search.run(budget)
    except OSError as error:
        return ErrorCode.KAFKA_STORAGE_ERROR.exception(f"could not read the records: {error}")
    except BrokerError as error:
        return error


def _refused(wanted: ReaderPosition, error: BrokerError) -> UnreadRecords:
    metrics.on_error("describe_unread", error.code)
    return UnreadRecords(wanted.topic, wanted.partition, error.code, error.message)
