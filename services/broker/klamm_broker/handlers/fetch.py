"""Fetch: answers long polls, and reads the next records of fetch streams.

Kafka's `KafkaApis.handleFetchRequest` and `ReplicaManager.fetchMessages`. A fetch is answered as soon as there are
`min_bytes`, a partition has an error, or `max_wait_ms` is over. Until then it is parked in the purgatory. If the
client's user has no place there, the fetch is answered immediately with the available records. The answer contains
every requested partition. `begin` answers without waiting if it can. Otherwise the caller must await `finish`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm_broker.handlers.isolation import reads_committed
from klamm_broker.handlers.parkers import ClientHost, parker_of, unknown_host
from klamm_broker.handlers.topic_rights import refused_topics
from klamm_broker.handlers.turns import TURN_PARTITIONS_MAX, end_long_turn
from klamm_broker.io import metrics
from klamm_broker.io.record_file import RecordFile
from klamm_broker.io.record_reader import Buffer, Copy, RecordReader
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.log.files.storage_failure import LogDirFailure
from klamm_broker.purgatory.driver import PurgatoryDriver
from klamm_broker.replica.delayed_fetch import DelayedFetch
from klamm_broker.replica.fetch_reader import (
    FetchCursor,
    FetchReader,
    LocatedFetch,
    LocatedSlice,
    ReaderTerms,
)
from klamm_broker.replica.reader_watch import ReaderContext
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.replica.replica_selector import ReplicaSelector
from klamm_server.runtime.event_queue import QueueFullError
from klamm_server.security.needs import READ_TOPIC
from klamm_server.security.session import CALLER

STREAM_WAIT_MS = 30_000
"""How long a stream is parked before it checks for records again."""

T = TypeVar("T")

_CONSUMER = -1
_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


@dataclass(slots=True)
class FetchQuery:
    """The partitions and limits of one fetch request or fetch stream. A stream moves its cursors forward."""

    cursors: Sequence[FetchCursor]
    """The positions to read. With `context`, those of its partitions that may have changed."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    terms: ReaderTerms
    client_host: ClientHost = unknown_host
    context: ReaderContext | None = None
    """The fetch of an incremental session, or None without one."""


class FetchHandler:
    """Handles Fetch requests of both protocols."""

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

    async def fetch(self, query: FetchQuery) -> tuple[LocatedFetch, Sequence[Buffer]]:
        """Waits until `min_bytes` are available or `max_wait_ms` is over. Returns the located records and their
        bytes."""
        return await self._read(query, await self._awaited(query, await self._located(query)), self._records.read)

    async def next(self, query: FetchQuery) -> tuple[LocatedFetch, Sequence[Buffer]]:
        """Returns the next records of a stream, as soon as there are any. Raises QueueFullError if the client's
        user has no place to wait."""
        return await self._read(query, await self._next(query), self._records.read)

    def begin(self, query: FetchQuery) -> tuple[LocatedFetch, Sequence[Copy] | None]:
        """Returns the located records and their bytes. The bytes are None if the caller must await `finish`."""
        found = self._locate(query)
        if self._must_wait(query, found):
            return found, None
        try:
            records = self._records.copy_resident(found.slices)
        except LogDirFailure:
            return found, None
        if records is not None:
            self._count(found)
        return found, records

    async def finish(self, query: FetchQuery, begun: LocatedFetch) -> tuple[LocatedFetch, Sequence[Copy | RecordFile]]:
        """Waits until there are enough records, or the time is over, and returns them. The caller closes the files
        among them."""
        found = await self._awaited(query, begun)
        # Another turn of the event loop may have changed the partitions since `begun`.
        return await self._read(query, self._locate(query) if found is begun else found, self._records.lend)

    def _must_wait(self, query: FetchQuery, found: LocatedFetch) -> bool:
        return (
            found.size_bytes < min(query.min_bytes, query.max_bytes)
            and query.max_wait_ms > 0
            and (bool(found.answers) or query.context is not None)
            and not found.is_urgent
        )

    async def _awaited(self, query: FetchQuery, found: LocatedFetch) -> LocatedFetch:
        """Returns `found` if the fetch need not wait. Otherwise waits for more records and locates them again."""
        if not self._must_wait(query, found):
            return found
        missing_bytes = min(query.min_bytes, query.max_bytes) - found.size_bytes
        has_waited = await self._wait(query, found, missing_bytes, query.max_wait_ms)
        return await self._located(query) if has_waited else found

    async def _next(self, query: FetchQuery) -> LocatedFetch:
        """Waits for the first byte without a time limit, and then up to `max_wait_ms` for `min_bytes`."""
        may_wait_for_more = query.max_wait_ms > 0
        while True:
            found = await self._located(query)
            missing_bytes = min(query.min_bytes, query.max_bytes) - found.size_bytes
            if found.is_urgent or (found.size_bytes and (missing_bytes <= 0 or not may_wait_for_more)):
                return found
            if found.size_bytes:
                may_wait_for_more = False
                has_waited = await self._wait(query, found, missing_bytes, query.max_wait_ms)
            else:
                has_waited = await self._wait(query, found, 1, STREAM_WAIT_MS)
            if not has_waited and not found.size_bytes:
                raise QueueFullError(
                    "too many fetch requests of this user are waiting (max.parked.requests): send the request again"
                    " later"
                )

    def _locate(self, query: FetchQuery) -> LocatedFetch:
        refused = _refreshed(query)
        room_bytes, wanted_bytes = self._free_bytes(query), _min_bytes(query)
        return self._reader.locate(query.cursors, room_bytes, query.terms, refused, wanted_bytes=wanted_bytes)

    async def _located(self, query: FetchQuery) -> LocatedFetch:
        """Locates the records, those of many partitions in several turns of the event loop."""
        refused = _refreshed(query)
        cursors, room_bytes, wanted_bytes = query.cursors, self._free_bytes(query), _min_bytes(query)
        if len(cursors) <= TURN_PARTITIONS_MAX:
            return self._reader.locate(cursors, room_bytes, query.terms, refused, wanted_bytes=wanted_bytes)
        found = None
        for start in range(0, len(cursors), TURN_PARTITIONS_MAX):
            part = cursors[start : start + TURN_PARTITIONS_MAX]
            found = self._reader.locate(part, room_bytes, query.terms, refused, found, wanted_bytes=wanted_bytes)
            await asyncio.sleep(0)
        assert found is not None
        return found

    def _free_bytes(self, query: FetchQuery) -> int:
        return min(query.max_bytes, self._fetch_max_bytes, self._memory.free_bytes)

    async def _wait(self, query: FetchQuery, found: LocatedFetch, missing_bytes: int, wait_ms: int) -> bool:
        """Waits for `missing_bytes`. Returns False at once if the client's user has no place to wait."""
        awaited = found.awaited
        # What another turn of the event loop changes is seen when the operation is first tried.
        await end_long_turn(awaited)
        if query.context is not None:
            return await self._wait_in_session(query, query.context, found, missing_bytes, wait_ms)
        keys = [partition.partition.topic_partition for partition in awaited]
        parker = parker_of(query.client_host, (key.topic for key in keys))
        return await self._fetches.wait(
            lambda on_done: DelayedFetch(awaited, missing_bytes, on_done), keys, wait_ms, parker
        )

    async def _wait_in_session(
        self, query: FetchQuery, context: ReaderContext, found: LocatedFetch, missing_bytes: int, wait_ms: int
    ) -> bool:
        """Waits as `_wait`. The session notices changes of all its partitions, so the purgatory watches none."""
        waits: list[DelayedFetch] = []

        def begin(on_done: Callable[[], None]) -> DelayedFetch:
            waits.append(context.begin_wait(found.awaited, missing_bytes, on_done))
            return waits[0]

        try:
            return await self._fetches.wait(begin, (), wait_ms, parker_of(query.client_host, context.topics))
        finally:
            context.end_wait(waits[0])

    async def _read(
        self,
        query: FetchQuery,
        found: LocatedFetch,
        read: Callable[[Sequence[LocatedSlice]], Awaitable[Sequence[T]]],
    ) -> tuple[LocatedFetch, Sequence[T]]:
        """Reads the records of `found`. If a log directory turns out to have failed, locates the records again and
        reads those."""
        while True:
            try:
                records = await read(found.slices)
                break
            except LogDirFailure:
                # The failed directory's partitions are offline now, so the loop ends. Partitions of other directories
                # are served.
                found = self._locate(query)
        self._count(found)
        return found, records

    def _count(self, found: LocatedFetch) -> None:
        """Counts the records that a fetch returns, and its errors."""
        if found.size_bytes:
            for answer in found.answers:
                if answer.records_bytes:
                    metrics.on_fetched(answer.topic_partition.topic, answer.records_bytes)
                    partition = self._replicas.get(answer.topic_partition)
                    if partition is not None:
                        partition.log.traffic.out_bytes += answer.records_bytes
        for error in found.errors:
            metrics.on_error("fetch", error.code)


def _min_bytes(query: FetchQuery) -> int:
    """Returns the bytes with which the fetch is answered without a wait. A stream waits for at least one."""
    return max(1, min(query.min_bytes, query.max_bytes))


def _refreshed(query: FetchQuery) -> AbstractSet[str]:
    """Sets the cursors of a session's fetch to the partitions that may have changed. Returns the topics that the caller
    may not read.

    The handler asks before each read, so that a client that lost its right gets an error at the end of a long poll."""
    refused: AbstractSet[str] = frozenset()
    context = query.context
    if CALLER.get() is not None:
        topics = {cursor.topic_partition.topic for cursor in query.cursors} if context is None else context.topics
        refused = refused_topics(READ_TOPIC, topics)
    if context is not None:
        query.cursors = context.cursors(query.terms, refused)
    return refused


def reader_terms(replica_id: int, isolation_level: int, rack: str) -> ReaderTerms:
    """Returns the terms of a consumer's read. Raises InvalidRequestError for a follower's replica id or an unknown
    isolation level."""
    if replica_id != _CONSUMER:
        raise _InvalidRequestError(f"replica id is {replica_id}; expected -1, because this API is for consumers only")
    return ReaderTerms(reads_committed(isolation_level), rack)
