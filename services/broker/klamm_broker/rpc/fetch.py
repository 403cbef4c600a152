"""Fetch, a long poll, and FetchStream, which reads on for ever.

Kafka's `KafkaApis.handleFetchRequest` and `ReplicaManager.fetchMessages`. A fetch is answered as soon as there
are `min_bytes`, or a partition has an error, or `max_wait_ms` is over; till then it is parked in the purgatory.
When that is full it is answered at once with what there is. Every partition asked for is in the answer.

On a stream the next read begins when gRPC has taken the answer before it: a slow reader holds one message of
at most `STREAM_MESSAGE_BYTES_MAX`, not a queue. Nothing is sent while nothing happens.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.records.header import LENGTH_OVERHEAD_BYTES, read_header
from klamm.wire.framed import encode_framed
from klamm.wire.v1.broker_pb2 import FetchHeader, FetchRequest
from klamm_broker import metrics
from klamm_broker.log.storage_failure import LogDirFailure
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.record_reader import Buffer, RecordReader
from klamm_broker.replica.delayed_fetch import DelayedFetch
from klamm_broker.replica.fetch_reader import FetchCursor, FetchReader, LocatedFetch
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.rpc.isolation import reads_committed
from klamm_broker.rpc.request_memory import RequestMemory
from klamm_server.event_queue import QueueFullError

STREAM_MESSAGE_BYTES_MAX = 1024**2
"""Where gRPC's cost per message no longer matters; larger ones only hold memory."""
STREAM_WAIT_MS = 30_000
"""How long a stream is parked before it looks again on its own."""

_CONSUMER = -1
_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


@dataclass(slots=True, kw_only=True)
class _Query:
    """What one caller reads; a stream's cursors move on."""

    cursors: list[FetchCursor]
    max_bytes: int
    read_committed: bool


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
    ) -> None:
        self._fetches = fetches
        self._records = records
        self._reader = FetchReader(replicas)
        self._memory = memory
        self._fetch_max_bytes = fetch_max_bytes

    async def fetch(self, request: FetchRequest, context: Any) -> bytes:
        query = _query(request, request.max_bytes)
        min_bytes = min(request.min_bytes, request.max_bytes)
        wait_ms = 0 if self._fetches.is_full else request.max_wait_ms
        found = self._locate(query)
        if wait_ms > 0 and found.answers and not found.errors and found.size_bytes < min_bytes:
            await self._wait(found, min_bytes - found.size_bytes, wait_ms)
            found = self._locate(query)
        found, records = await self._read(query, found)
        self._memory.take_anyway(found.size_bytes)
        context.add_done_callback(lambda _: self._memory.give_back(found.size_bytes))
        return encode_framed(FetchHeader(partitions=found.answers), records)

    async def fetch_stream(self, request: FetchRequest, context: Any) -> AsyncIterator[bytes]:
        query = _query(request, min(request.max_bytes, STREAM_MESSAGE_BYTES_MAX))
        while query.cursors:
            found, records = await self._read(query, await self._next(query, request))
            answers = [one for one in found.answers if one.records_bytes or one.error_code]
            message = encode_framed(FetchHeader(partitions=answers), records)
            query.cursors = _advanced(query.cursors, found, records)
            self._memory.take_anyway(found.size_bytes)
            try:
                yield message
            finally:
                self._memory.give_back(found.size_bytes)

    async def _next(self, query: _Query, request: FetchRequest) -> LocatedFetch:
        """What a stream sends next. Waits for the first byte as long as it takes, then like a fetch for more."""
        may_wait_for_more = request.max_wait_ms > 0
        while True:
            found = self._locate(query)
            missing_bytes = min(request.min_bytes, query.max_bytes) - found.size_bytes
            if found.errors or (found.size_bytes and (missing_bytes <= 0 or not may_wait_for_more)):
                return found
            if self._fetches.is_full:
                raise QueueFullError("max.parked.requests fetches wait already")
            if found.size_bytes:
                may_wait_for_more = False
                await self._wait(found, missing_bytes, request.max_wait_ms)
            else:
                await self._wait(found, 1, STREAM_WAIT_MS)

    def _locate(self, query: _Query) -> LocatedFetch:
        max_bytes = min(query.max_bytes, self._fetch_max_bytes, self._memory.free_bytes)
        return self._reader.locate(query.cursors, max_bytes, read_committed=query.read_committed)

    async def _wait(self, found: LocatedFetch, missing_bytes: int, wait_ms: int) -> None:
        awaited = found.awaited
        keys = [one.partition.topic_partition for one in awaited]
        await self._fetches.wait(lambda on_done: DelayedFetch(awaited, missing_bytes, on_done), keys, wait_ms)

    async def _read(self, query: _Query, found: LocatedFetch) -> tuple[LocatedFetch, Sequence[Buffer]]:
        """The records of what was found just now, or of what is found when a log dir turns out to have failed."""
        while True:
            try:
                records = await self._records.read(found.slices)
                break
            except LogDirFailure:
                # Its partitions are offline from now on, so this ends; those of other dirs are served.
                found = self._locate(query)
        metrics.BYTES_OUT.inc(found.size_bytes)
        for error in found.errors:
            metrics.on_error("fetch", error.code)
        return found, records


def _query(request: FetchRequest, max_bytes: int) -> _Query:
    """Raises InvalidRequestError."""
    if request.replica_id != _CONSUMER:
        raise _InvalidRequestError(f"replica id {request.replica_id}; only consumers (-1) are served here")
    return _Query(
        cursors=[FetchCursor.of(partition) for partition in request.partitions],
        max_bytes=max_bytes,
        read_committed=reads_committed(request.isolation_level),
    )


def _advanced(cursors: Sequence[FetchCursor], found: LocatedFetch, records: Sequence[Buffer]) -> list[FetchCursor]:
    """The cursors to read on from: those that failed are gone, those that were served come last.

    Else the first partitions, always full, would keep the others from ever being read."""
    parts = iter(records)
    waiting, served = [], []
    for cursor, answer in zip(cursors, found.answers, strict=True):
        if answer.error_code:
            continue
        if answer.records_bytes:
            cursor.offset = next_offset(next(parts))
            served.append(cursor)
        else:
            waiting.append(cursor)
    return waiting + served


def next_offset(records: Buffer) -> int:
    """One past the last offset of some whole batches; looks at their lengths only."""
    position = last = 0
    while position < len(records):
        last = position
        position += LENGTH_OVERHEAD_BYTES + _LENGTH.unpack_from(records, position + _LENGTH_POSITION)[0]
    return read_header(records, last).next_offset
