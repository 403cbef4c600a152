"""The source's requests to a cluster: for partitions, offsets, and raw batches.

Calls block, and the network runs on the process's client loop. A topic that stays unknown for `TOPIC_WAIT_MS` counts as
deleted. This time lets brokers learn about a new topic, or start.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from klamm.cluster.client import KlammClient
from klamm.cluster.leader_calls import missing_leader_error
from klamm.cluster.metadata import ClusterView
from klamm.cluster.offset_finder import READ_COMMITTED, READ_UNCOMMITTED, OffsetFinder
from klamm.config import ClientConfig
from klamm.consumer.fetch.read_replicas import ReadReplicas
from klamm.consumer.offsets.offset_store import OUTSIDE_THE_GROUP, OffsetStore
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode, KlammError, NoBrokerError, raise_for
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata, OffsetAndTimestamp
from klamm.records import MAX_DECOMPRESSED_BYTES, iter_headers
from klamm.setting import boolean, integer, one_of, text
from klamm.threads.loop_thread import LoopThread
from klamm.wire.framed import decode_framed
from klamm.wire.v1 import broker_pb2
from pyspark_klamm.client_cache import ClientCache
from pyspark_klamm.offsets import OffsetRange, Offsets
from pyspark_klamm.outage import Outage

log = logging.getLogger(__name__)
T = TypeVar("T")
TOPIC_WAIT_MS: Final = 5_000
CHECK_TIMEOUT_MS: Final = 10_000
"""How long the check of a cluster's address may take, which comes before a query."""
LEADER_ONLY_S: Final = 1.0
"""How long a partition is read from its leader after a closer replica failed."""
COMMIT_TIMEOUT_MS: Final = 5_000
"""How long a commit may take, because a query may wait for it. The query's next commit replaces one that failed."""

_OF_CONSUMERS: Final = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
)
"""Settings that tune the consumers that Spark's Kafka source reads with. They mean nothing without a consumer."""

_NetworkError = EXCEPTIONS[ErrorCode.NETWORK_EXCEPTION]
OffsetOutOfRangeError = EXCEPTIONS[ErrorCode.OFFSET_OUT_OF_RANGE]
UnknownTopicOrPartitionError = EXCEPTIONS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
_OffsetNotAvailableError = EXCEPTIONS[ErrorCode.OFFSET_NOT_AVAILABLE]


class TopicGoneError(KlammError):
    """Raised if a topic or partition that existed is not known any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig(ClientConfig):
    """The `kafka.*` options of a source, in addition to those of every client."""

    WITHOUT_EFFECT: ClassVar[Mapping[str, str]] = {
        **ClientConfig.WITHOUT_EFFECT,
        **dict.fromkeys(_OF_CONSUMERS, "tasks of Spark read partitions without a consumer"),
    }

    isolation_level: str = text(
        "read_committed",
        valid=one_of("read_committed", "read_uncommitted"),
        doc="Unlike Kafka's default: a pipeline should not compute with what may yet be aborted.",
    )
    fetch_max_wait_ms: int = integer(500, at_least=0, doc="How long a broker holds a fetch that finds nothing.")
    max_partition_fetch_bytes: int = integer(4 * 1024 * 1024, at_least=1, doc="Size of one fetch.")
    check_crcs: bool = boolean(True, doc="Whether each batch's CRC is checked before its records are used.")
    max_decompressed_batch_bytes: int = integer(
        MAX_DECOMPRESSED_BYTES,
        at_least=1,
        at_most=MAX_DECOMPRESSED_BYTES,
        doc="The largest size of a batch's records after decompression. A task holds all records of a batch in memory,"
        " and fails if a batch is larger.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatches:
    """The whole batches of one fetch. The first may begin before `start_offset`, and the last may end after the
    range."""

    records: memoryview
    start_offset: int
    next_offset: int
    aborted_transactions: tuple[tuple[int, int], ...] | None
    """Pairs of producer id and first offset of the aborted transactions in the batches. None with read_uncommitted."""


class ClusterAccess:
    """Blocking access to a cluster. A process shares one for each settings: `accesses.get(settings)`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.config = AccessConfig.parse(settings)
        self._replicas = ReadReplicas(self.config.metadata_max_age_ms / 1000)
        self._outage = Outage()
        self._loop = LoopThread.shared()
        self._client = self._loop.run(self._connect)

    async def _connect(self) -> KlammClient:
        return KlammClient(self.config)

    def close(self) -> None:
        """Closes the connections. Calls under way fail."""
        self._loop.run(self._client.close)

    @property
    def has_answered(self) -> bool:
        """True if a server of the cluster has ever answered this process."""
        return bool(self._client.cluster.brokers)

    def check_address(self) -> None:
        """Asks the cluster once, unless it has answered before. So a wrong address, protocol or login ends a query
        before it begins. Raises the error, but only logs one that may pass, such as that of a broker that is down."""
        if not self.has_answered:
            self._loop.run(self._check_address)

    def describe(self, topics: Collection[str] | None, expected: Collection[str]) -> ClusterView:
        """Returns a fresh view of `topics`, or of all topics for None. A topic in `expected` is missing in it only if
        it is gone."""
        with contextlib.suppress(TopicGoneError):
            self._loop.run(self._retry_unless_gone, lambda: self._describe(topics, expected), self._timeout_ms)
        return self._client.cluster

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the offsets of timestamps (or LATEST, EARLIEST) by partition, with the configured isolation level.
        The offset is -1 if no record is that late. Raises TopicGoneError."""
        finder = OffsetFinder(self._client, self._isolation_level)
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        self._loop.run(self._retry_unless_gone, lambda: finder.ask_once(wanted, found), self._timeout_ms)
        return {tp: entry.offset for tp, entry in found.items()}

    def wait_for_records(self, offsets: Offsets, timeout_ms: int) -> bool:
        """Waits until a partition has a record at its offset, for `timeout_ms` at most. Returns True also if a broker
        cannot tell."""
        return self._loop.run(self._wait_for_records, offsets, timeout_ms)

    def commit(self, group_id: str, offsets: Offsets) -> concurrent.futures.Future[None]:
        """Commits the offsets for a group without members, in the background. Skips partitions that are gone."""
        committed = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        store = OffsetStore(self._client, group_id)
        committing = store.commit(committed, lambda: OUTSIDE_THE_GROUP, timeout_ms=COMMIT_TIMEOUT_MS, skip_gone=True)
        return asyncio.run_coroutine_threadsafe(committing, self._loop.loop)

    def fetch(self, wanted: OffsetRange, timeout_ms: int) -> Iterator[FetchedBatches]:
        """Yields the batches that contain the range. While the caller works on a batch, the next fetch is under way
        already.

        Raises OffsetOutOfRangeError if the range begins before the partition's log or ends after it. Raises
        TopicGoneError, or another error that lasts for `timeout_ms`."""
        position = wanted.start_offset
        pending = self._submit_fetch(wanted, position, timeout_ms)
        while True:
            fetched = pending.result()
            position = fetched.next_offset
            if position < wanted.end_offset:
                pending = self._submit_fetch(wanted, position, timeout_ms)
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

    async def _check_address(self) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_MS / 1000):
                await self._client.refresh_metadata(())
        except TimeoutError:
            self._warn(f"no answer within {CHECK_TIMEOUT_MS} ms")
        except KlammError as error:
            if not error.retriable:
                raise
            self._warn(error)

    def _warn(self, problem: object) -> None:
        """Logs that the cluster does not answer, at the first failure and then once a minute."""
        if self._outage.is_worth_a_warning(asyncio.get_running_loop().time()):
            servers = ", ".join(self.config.bootstrap_servers)
            log.warning("the cluster at %s does not answer, and the query will try again: %s", servers, problem)

    async def _describe(self, topics: Collection[str] | None, expected: Collection[str]) -> None:
        view = await self._client.refresh_metadata(topics)
        for topic in expected:
            if topic not in view.topics:
                raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")

    async def _retry_unless_gone(self, operation: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
        """Retries the operation after temporary errors. Raises TopicGoneError if its topic stays unknown."""
        clock = asyncio.get_running_loop().time
        unknown_since_s: float | None = None

        async def attempt() -> T:
            nonlocal unknown_since_s
            try:
                result = await operation()
                self._outage.end()
                return result
            except (NoBrokerError, _NetworkError) as error:
                self._warn(error)
                raise
            except UnknownTopicOrPartitionError as error:
                unknown_since_s = unknown_since_s or clock()
                if clock() - unknown_since_s >= TOPIC_WAIT_MS / 1000:
                    raise TopicGoneError(error.message) from error
                raise

        return await self._client.retrying(attempt, timeout_ms=timeout_ms)

    async def _wait_for_records(self, offsets: Offsets, timeout_ms: int) -> bool:
        requests: dict[int, broker_pb2.FetchRequest] = {}
        try:
            for tp, offset in offsets.items():
                request = requests.setdefault(self._leader_of(tp), self._fetch_request(timeout_ms, max_bytes=1))
                _add_partition(request, tp, offset, max_bytes=1)
        except BrokerError:
            return True
        if not requests:
            # No topic matches yet, so there is no broker to ask, and no call waits for new metadata.
            await asyncio.sleep(timeout_ms / 1000)
            return True
        waits = [
            asyncio.ensure_future(self._has_records(broker_id, request)) for broker_id, request in requests.items()
        ]
        finished, unfinished = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in unfinished:
            wait.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        return any(wait.result() for wait in finished)

    async def _has_records(self, broker_id: int, request: broker_pb2.FetchRequest) -> bool:
        try:
            header, records = decode_framed(await self._client.broker(broker_id).fetch(request), broker_pb2.FetchHeader)
        except KlammError:
            return True
        return len(records) > 0 or any(partition.error_code for partition in header.partitions)

    def _submit_fetch(
        self, wanted: OffsetRange, position: int, timeout_ms: int
    ) -> concurrent.futures.Future[FetchedBatches]:
        fetching = self._retry_unless_gone(lambda: self._fetch(wanted, position), timeout_ms)
        return asyncio.run_coroutine_threadsafe(fetching, self._loop.loop)

    async def _fetch(self, wanted: OffsetRange, position: int) -> FetchedBatches:
        if self._client.cluster.leader_of(wanted.tp) is None:
            await self._client.refresh_metadata([wanted.tp.topic])
        partition, records = await self._fetch_nearby(wanted.tp, position)
        next_offset = position
        for _, batch in iter_headers(records):
            next_offset = batch.next_offset
        if next_offset == position:
            if partition.high_watermark < wanted.end_offset:
                raise OffsetOutOfRangeError(
                    f"{wanted.tp} ends at {partition.high_watermark}, expected {wanted.end_offset}"
                )
            raise _OffsetNotAvailableError(f"{wanted.tp} has no stable records at offset {position} yet")
        aborted = tuple(
            (aborted_transaction.producer_id, aborted_transaction.first_offset)
            for aborted_transaction in partition.aborted_transactions
        )
        return FetchedBatches(
            records=records,
            start_offset=position,
            next_offset=next_offset,
            aborted_transactions=aborted if self._isolation_level == READ_COMMITTED else None,
        )

    async def _fetch_nearby(self, tp: TopicPartition, position: int) -> tuple[broker_pb2.FetchedPartition, memoryview]:
        """Fetches from the leader, or from the closer replica that it names (KIP-392). If the replica fails, fetches
        from the leader."""
        now_s = asyncio.get_running_loop().time()
        leader, leader_epoch = self._leader_of(tp), self._client.cluster.leader_epoch_of(tp)
        node_id = self._replicas.node_for(tp, leader, leader_epoch, now_s)
        try:
            partition, records = await self._fetch_from(node_id, tp, position, now_s)
        except KlammError as error:
            if self._replicas.fall_back(tp, now_s + LEADER_ONLY_S):
                raise _OffsetNotAvailableError(f"could not read {tp} from replica {node_id}: {error}") from error
            raise
        if partition.HasField("preferred_read_replica"):
            self._replicas.prefer(tp, partition.preferred_read_replica, leader_epoch, now_s)
            return await self._fetch_nearby(tp, position)
        if not records and self._replicas.fall_back(tp, now_s + LEADER_ONLY_S):
            return await self._fetch_nearby(tp, position)
        return partition, records

    async def _fetch_from(
        self, node_id: int, tp: TopicPartition, position: int, now_s: float
    ) -> tuple[broker_pb2.FetchedPartition, memoryview]:
        max_bytes = self.config.max_partition_fetch_bytes
        request = self._fetch_request(self.config.fetch_max_wait_ms, max_bytes=max_bytes)
        if not self._replicas.needs_leader([tp], now_s):
            request.rack_id = self.config.client_rack
        _add_partition(request, tp, position, max_bytes=max_bytes)
        header, records = decode_framed(await self._client.broker(node_id).fetch(request), broker_pb2.FetchHeader)
        (partition,) = header.partitions
        raise_for(partition.error_code, f"{tp} at offset {position}: {partition.error_message}")
        return partition, records

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
        cluster = self._client.cluster
        leader = cluster.leader_of(tp)
        if leader is None:
            raise missing_leader_error(cluster.topic_errors.get(tp.topic), cluster.partition_count(tp.topic), tp)
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


accesses: Final = ClientCache(ClusterAccess, AccessConfig, time.monotonic)
"""The cluster accesses of this process, by settings. Their connections are kept between micro-batches."""
