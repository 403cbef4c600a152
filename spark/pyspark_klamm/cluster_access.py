"""What the source asks of a cluster: partitions, offsets, and raw batches. One client per process and settings.

Spark's workers are forked once and reused for many tasks, so a client lives as long as its process. Calls block;
the network runs on the process's client loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from klamm.client import KlammClient
from klamm.cluster import ClusterView
from klamm.config import ClientConfig, boolean, integer, text
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, raise_for
from klamm.loop_thread import LoopThread
from klamm.model import TopicPartition
from klamm.offset_finder import READ_COMMITTED, READ_UNCOMMITTED, OffsetFinder
from klamm.records import iter_headers
from klamm.wire.framed import decode_framed
from klamm.wire.v1 import broker_pb2
from pyspark_klamm.offsets import OffsetRange

TOPIC_WAIT_MS: Final = 5_000
"""How long a topic may be unknown: one that was just created has not reached every broker yet."""

_OffsetOutOfRangeError = EXCEPTIONS[ErrorCode.OFFSET_OUT_OF_RANGE]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig(ClientConfig):
    """The `kafka.*` options a source understands, besides those of every client."""

    isolation_level: str = text("read_committed", one_of=("read_committed", "read_uncommitted"))
    """Unlike Kafka's default: a pipeline should not compute with what may yet be aborted."""
    fetch_max_wait_ms: int = integer(500, at_least=0)
    """How long a broker holds a fetch that finds nothing."""
    max_partition_fetch_bytes: int = integer(4 * 1024 * 1024, at_least=1)
    """Size of one fetch."""
    check_crcs: bool = boolean(True)
    """Check each batch's CRC before its records are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatches:
    """One fetch's worth of whole batches; the first may begin before `start_offset`, the last end after the range."""

    records: memoryview
    start_offset: int
    next_offset: int
    aborted_transactions: tuple[tuple[int, int], ...] | None
    """(producer id, first offset) of the aborted transactions among them; None: read_uncommitted."""


class ClusterAccess:
    """Blocking access to a cluster. Use `access(settings)`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.config = AccessConfig.parse(settings)
        self._loop = LoopThread.shared()
        self._client = self._loop.run(self._connect)

    async def _connect(self) -> KlammClient:
        return KlammClient(self.config)

    def describe(self, topics: Collection[str]) -> ClusterView:
        """A fresh view of `topics`. Raises UnknownTopicOrPartitionError for one that is not there."""
        return self._loop.run(self._client.retrying, lambda: self._describe(topics), timeout_ms=TOPIC_WAIT_MS)

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets of timestamps (or LATEST, EARLIEST) by partition, with the configured isolation level."""
        finder = OffsetFinder(self._client, self._isolation_level)
        found = self._loop.run(finder.find, wanted, timeout_ms=self._timeout_ms)
        return {tp: each.offset for tp, each in found.items()}

    def wait_for_records(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """Returns when some partition has a record at its offset, or after `timeout_ms`."""
        self._loop.run(self._wait_for_records, offsets, timeout_ms)

    def fetch(self, wanted: OffsetRange) -> Iterator[FetchedBatches]:
        """The batches that hold `wanted`, the next fetch always under way while the caller works on the last.

        Raises OffsetOutOfRangeError when the range begins before what the partition holds or ends after it."""
        position = wanted.start_offset
        pending = self._submit_fetch(wanted, position)
        while True:
            fetched = pending.result()
            position = fetched.next_offset
            if position < wanted.end_offset:
                pending = self._submit_fetch(wanted, position)
            if fetched.records:
                yield fetched
            if position >= wanted.end_offset:
                return

    @property
    def _timeout_ms(self) -> int:
        return self.config.default_api_timeout_ms

    @property
    def _isolation_level(self) -> int:
        return READ_COMMITTED if self.config.isolation_level == "read_committed" else READ_UNCOMMITTED

    async def _describe(self, topics: Collection[str]) -> ClusterView:
        view = await self._client.refresh_metadata(topics)
        for topic in topics:
            if (code := view.topic_errors.get(topic)) is not None:
                raise code.exception(f"topic {topic!r}")
        return view

    async def _wait_for_records(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        requests: dict[int, broker_pb2.FetchRequest] = {}
        for tp, offset in offsets.items():
            with contextlib.suppress(BrokerError):  # the offsets looked up next report a missing leader
                request = requests.setdefault(self._leader_of(tp), self._fetch_request(timeout_ms, max_bytes=1))
                _add_partition(request, tp, offset, max_bytes=1)
        waits = [
            asyncio.ensure_future(self._client.broker(broker).fetch(request)) for broker, request in requests.items()
        ]
        if not waits:
            return
        _, unfinished = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in unfinished:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    def _submit_fetch(self, wanted: OffsetRange, position: int) -> concurrent.futures.Future[FetchedBatches]:
        fetching = self._client.retrying(lambda: self._fetch(wanted, position), timeout_ms=self._timeout_ms)
        return asyncio.run_coroutine_threadsafe(fetching, self._loop.loop)

    async def _fetch(self, wanted: OffsetRange, position: int) -> FetchedBatches:
        if self._client.cluster.leader_of(wanted.tp) is None:
            await self._client.refresh_metadata([wanted.tp.topic])
        stub = self._client.broker(self._leader_of(wanted.tp))
        max_bytes = self.config.max_partition_fetch_bytes
        request = self._fetch_request(self.config.fetch_max_wait_ms, max_bytes=max_bytes)
        _add_partition(request, wanted.tp, position, max_bytes=max_bytes)
        header, records = decode_framed(await stub.fetch(request), broker_pb2.FetchHeader)
        (partition,) = header.partitions
        raise_for(partition.error_code, f"{wanted.tp} at offset {position}: {partition.error_message}")
        next_offset = position
        for _, batch in iter_headers(records):
            next_offset = batch.next_offset
        if next_offset == position:
            if partition.high_watermark < wanted.end_offset:
                raise _OffsetOutOfRangeError(
                    f"{wanted.tp} ends at {partition.high_watermark}, {wanted.end_offset} was expected"
                )
            raise EXCEPTIONS[ErrorCode.OFFSET_NOT_AVAILABLE](f"{wanted.tp} has nothing stable at offset {position} yet")
        aborted = tuple((each.producer_id, each.first_offset) for each in partition.aborted_transactions)
        return FetchedBatches(
            records=records,
            start_offset=position,
            next_offset=next_offset,
            aborted_transactions=aborted if self._isolation_level == READ_COMMITTED else None,
        )

    def _fetch_request(self, max_wait_ms: int, *, max_bytes: int) -> broker_pb2.FetchRequest:
        return broker_pb2.FetchRequest(
            client_id=self.config.client_id,
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=self._isolation_level,
        )

    def _leader_of(self, tp: TopicPartition) -> int:
        leader = self._client.cluster.leader_of(tp)
        if leader is None:
            raise EXCEPTIONS[ErrorCode.LEADER_NOT_AVAILABLE](f"{tp} has no leader")
        return leader.node_id


def _add_partition(request: broker_pb2.FetchRequest, tp: TopicPartition, offset: int, *, max_bytes: int) -> None:
    request.partitions.add(
        topic=tp.topic,
        partition=tp.partition,
        fetch_offset=offset,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        max_bytes=max_bytes,
    )


_accesses: dict[frozenset[tuple[str, str]], ClusterAccess] = {}


def access(settings: Mapping[str, str]) -> ClusterAccess:
    """The process's access with these settings, made on first use."""
    key = frozenset(settings.items())
    if key not in _accesses:
        _accesses[key] = ClusterAccess(settings)
    return _accesses[key]
