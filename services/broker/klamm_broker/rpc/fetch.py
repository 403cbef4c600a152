"""Fetch, a long poll, and FetchStream, which reads on for ever.

Kafka's `KafkaApis.handleFetchRequest` and `ReplicaManager.fetchMessages`. A fetch is answered as soon as there
are `min_bytes`, or a partition has an error, or `max_wait_ms` is over; till then it is parked in the purgatory.
When that is full it is answered at once with what there is. Every partition asked for is in the answer.

Kafka's listener asks `begin`, which says without a wait what can be said so, and else awaits `finish`.

On a stream the next read begins when gRPC has taken the answer before it: a slow reader holds one message of
at most `STREAM_MESSAGE_BYTES_MAX`, not a queue. Nothing is sent while nothing happens.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import NO_LEADER_EPOCH, TopicPartition
from klamm.records.header import LENGTH_OVERHEAD_BYTES, read_header
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import AbortedTransaction, DivergingEpoch, FetchedPartition, FetchHeader, FetchRequest
from klamm_broker import metrics
from klamm_broker.log.storage_failure import LogDirFailure
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.record_file import RecordFile
from klamm_broker.record_reader import Buffer, Copy, RecordReader
from klamm_broker.replica.delayed_fetch import DelayedFetch
from klamm_broker.replica.fetch_reader import (
    FetchCursor,
    FetchReader,
    LocatedFetch,
    LocatedSlice,
    PartitionAnswer,
    ReaderTerms,
)
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_selector import ReplicaSelector
from klamm_broker.rpc.isolation import reads_committed
from klamm_broker.rpc.leader_hints import leader_nodes
from klamm_broker.rpc.request_memory import RequestMemory
from klamm_server.event_queue import QueueFullError

STREAM_MESSAGE_BYTES_MAX = 1024**2
"""Where gRPC's cost per message no longer matters; larger ones only hold memory."""
STREAM_WAIT_MS = 30_000
"""How long a stream is parked before it looks again on its own."""

T = TypeVar("T")

_CONSUMER = -1
_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


@dataclass(slots=True)
class FetchQuery:
    """What one caller reads; a stream's cursors move on."""

    cursors: Sequence[FetchCursor]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    terms: ReaderTerms


class FetchRpc:
    """Handles Fetch and FetchStream."""

    def __init__(
        self,
        replicas: ReplicaManager,
        fetches: PurgatoryDriver,
        records: RecordReader,
        memory: RequestMemory,
        *,
        fetch_max_bytes: int,
        selector: ReplicaSelector | None = None,
    ) -> None:
        self._replicas = replicas
        self._fetches = fetches
        self._records = records
        self._reader = FetchReader(replicas, selector)
        self._memory = memory
        self._fetch_max_bytes = fetch_max_bytes

    async def fetch(self, request: FetchRequest, context: Any) -> bytes:
        query = _query(request, request.max_bytes, rack=request.rack_id)
        found, records = await self._read(query, await self._awaited(query, self._locate(query)), self._records.read)
        self._memory.take_anyway(found.size_bytes)
        context.add_done_callback(lambda _: self._memory.give_back(found.size_bytes))
        return encode_framed(self._header(found, found.answers), records)

    def begin(self, query: FetchQuery) -> tuple[LocatedFetch, Sequence[Copy] | None]:
        """What there is now, with its records if that is the answer; None: `finish` has it."""
        found = self._locate(query)
        if self._must_wait(query, found):
            return found, None
        try:
            records = self._records.copy_resident(found.slices)
        except LogDirFailure:
            return found, None
        if records is not None:
            _count(found)
        return found, records

    async def finish(self, query: FetchQuery, begun: LocatedFetch) -> tuple[LocatedFetch, Sequence[Copy | RecordFile]]:
        """What there is once it is enough or the time is over; the files among the records are the caller's to
        close."""
        found = await self._awaited(query, begun)
        # What was begun in another turn may be stale.
        return await self._read(query, self._locate(query) if found is begun else found, self._records.lend)

    def _must_wait(self, query: FetchQuery, found: LocatedFetch) -> bool:
        return (
            found.size_bytes < min(query.min_bytes, query.max_bytes)
            and query.max_wait_ms > 0
            and bool(found.answers)
            and not found.is_urgent
            and not self._fetches.is_full
        )

    async def _awaited(self, query: FetchQuery, found: LocatedFetch) -> LocatedFetch:
        """What a long poll finds at its end, if this is not it yet."""
        if not self._must_wait(query, found):
            return found
        await self._wait(found, min(query.min_bytes, query.max_bytes) - found.size_bytes, query.max_wait_ms)
        return self._locate(query)

    async def fetch_stream(self, request: FetchRequest, context: Any) -> AsyncIterator[bytes]:
        query = _query(request, min(request.max_bytes, STREAM_MESSAGE_BYTES_MAX))
        while query.cursors:
            found, records = await self._read(query, await self._next(query), self._records.read)
            answers = [one for one in found.answers if one.records_bytes or _ends_reading(one)]
            message = encode_framed(self._header(found, answers), records)
            query.cursors = _advanced(query.cursors, found, records)
            self._memory.take_anyway(found.size_bytes)
            try:
                yield message
            finally:
                self._memory.give_back(found.size_bytes)

    def _header(self, found: LocatedFetch, answers: Sequence[PartitionAnswer]) -> FetchHeader:
        nodes = leader_nodes(self._replicas.brokers, answers) if found.errors else ()
        return FetchHeader(partitions=map(_on_the_wire, answers), node_endpoints=nodes)

    async def _next(self, query: FetchQuery) -> LocatedFetch:
        """What a stream sends next. Waits for the first byte as long as it takes, then like a fetch for more."""
        may_wait_for_more = query.max_wait_ms > 0
        while True:
            found = self._locate(query)
            missing_bytes = min(query.min_bytes, query.max_bytes) - found.size_bytes
            if found.is_urgent or (found.size_bytes and (missing_bytes <= 0 or not may_wait_for_more)):
                return found
            if self._fetches.is_full:
                raise QueueFullError("max.parked.requests fetches wait already")
            if found.size_bytes:
                may_wait_for_more = False
                await self._wait(found, missing_bytes, query.max_wait_ms)
            else:
                await self._wait(found, 1, STREAM_WAIT_MS)

    def _locate(self, query: FetchQuery) -> LocatedFetch:
        max_bytes = min(query.max_bytes, self._fetch_max_bytes, self._memory.free_bytes)
        return self._reader.locate(query.cursors, max_bytes, query.terms)

    async def _wait(self, found: LocatedFetch, missing_bytes: int, wait_ms: int) -> None:
        awaited = found.awaited
        keys = [one.partition.topic_partition for one in awaited]
        await self._fetches.wait(lambda on_done: DelayedFetch(awaited, missing_bytes, on_done), keys, wait_ms)

    async def _read(
        self,
        query: FetchQuery,
        found: LocatedFetch,
        read: Callable[[Sequence[LocatedSlice]], Awaitable[Sequence[T]]],
    ) -> tuple[LocatedFetch, Sequence[T]]:
        """The records of what was found just now, or of what is found when a log dir turns out to have failed."""
        while True:
            try:
                records = await read(found.slices)
                break
            except LogDirFailure:
                # Its partitions are offline from now on, so this ends; those of other dirs are served.
                found = self._locate(query)
        _count(found)
        return found, records


def _count(found: LocatedFetch) -> None:
    if found.size_bytes:
        for answer in found.answers:
            if answer.records_bytes:
                metrics.on_fetched(answer.topic_partition.topic, answer.records_bytes)
    for error in found.errors:
        metrics.on_error("fetch", error.code)


def reader_terms(replica_id: int, isolation_level: int, rack: str) -> ReaderTerms:
    """Raises InvalidRequestError."""
    if replica_id != _CONSUMER:
        raise _InvalidRequestError(f"replica id {replica_id}; only consumers (-1) are served here")
    return ReaderTerms(reads_committed(isolation_level), rack)


def _query(request: FetchRequest, max_bytes: int, *, rack: str = "") -> FetchQuery:
    """Raises InvalidRequestError."""
    cursors = [
        FetchCursor(
            TopicPartition(one.topic, one.partition),
            one.fetch_offset,
            max(0, one.max_bytes),
            one.current_leader_epoch,
            one.last_fetched_epoch,
        )
        for one in request.partitions
    ]
    terms = reader_terms(request.replica_id, request.isolation_level, rack)
    return FetchQuery(cursors, request.max_wait_ms, request.min_bytes, max_bytes, terms)


def _on_the_wire(answer: PartitionAnswer) -> FetchedPartition:
    fetched = FetchedPartition(
        topic=answer.topic_partition.topic,
        partition=answer.topic_partition.partition,
        error_code=answer.error_code,
        error_message=answer.error_message,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.log_start_offset,
        records_bytes=answer.records_bytes,
        current_leader=answer.current_leader,
        current_leader_epoch=answer.current_leader_epoch,
    )
    for one in answer.aborted_transactions:
        fetched.aborted_transactions.append(
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        )
    if answer.diverging is not None:
        fetched.diverging.CopyFrom(DivergingEpoch(epoch=answer.diverging.epoch, end_offset=answer.diverging.end_offset))
    if answer.preferred_read_replica >= 0:
        fetched.preferred_read_replica = answer.preferred_read_replica
    return fetched


def _advanced(cursors: Sequence[FetchCursor], found: LocatedFetch, records: Sequence[Buffer]) -> list[FetchCursor]:
    """The cursors to read on from: those that failed are gone, those that were served come last.

    Else the first partitions, always full, would keep the others from ever being read."""
    parts = iter(records)
    waiting, served = [], []
    for cursor, answer in zip(cursors, found.answers, strict=True):
        if _ends_reading(answer):
            continue
        if answer.records_bytes:
            cursor.offset = next_offset(next(parts))
            # From here on it reads on in this log, or is refused by its leader epoch.
            cursor.last_fetched_epoch = NO_LEADER_EPOCH
            served.append(cursor)
        else:
            waiting.append(cursor)
    return waiting + served


def _ends_reading(answer: PartitionAnswer) -> bool:
    """Whether a stream does not read on there."""
    return bool(answer.error_code) or answer.diverging is not None


def next_offset(records: Buffer) -> int:
    """One past the last offset of some whole batches; looks at their lengths only."""
    position = last = 0
    while position < len(records):
        last = position
        position += LENGTH_OVERHEAD_BYTES + _LENGTH.unpack_from(records, position + _LENGTH_POSITION)[0]
    return read_header(records, last).next_offset
