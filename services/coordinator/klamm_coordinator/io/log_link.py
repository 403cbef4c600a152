"""A shard's log: its partition of an internal topic on the brokers.

    claim   appends a first record under this owner's writer epoch. From then on the brokers' idempotence check refuses
            all late appends of earlier owners, so the log before the claim is final
    load    reads everything before the claim
    append  appends writes of the shard in order, one batch at a time, with acks=all

A batch without a definite answer is sent again unchanged, with the same sequence number, until it gets one. The broker
recognises a batch that it has already. So a write is decided once, in order, and never twice in the log.

Offsets of a transaction, and its marker, are batches of the transaction's producer, without sequence numbers. They
carry this owner's fence and the offset at which they must begin, because the partition has no other writer. So the
broker does not append a late copy of a batch again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from klamm.errors import BrokerError, ErrorCode, KlammError
from klamm.records import (
    ControlRecordType,
    RawRecord,
    encode_batch,
    end_transaction_marker,
    increment_sequence,
    last_header,
)
from klamm.retry import Backoff
from klamm.rpc.retrying import retrying
from klamm.wire.framed import decode_framed, encode_framed
from klamm.wire.v1.broker_pb2 import (
    FetchedPartition,
    FetchHeader,
    FetchPartition,
    FetchRequest,
    ProducedPartition,
    ProduceHeader,
    ProducePartition,
    WriterFence,
)
from klamm_coordinator.io.write_memory import WriteMemory
from klamm_coordinator.runtime.log_write import LogWrite, TxnMarker, TxnProducer
from klamm_coordinator.runtime.shard_topic import ShardTopic
from klamm_server.metadata.entities import ShardImage
from klamm_server.rpc.broker_channels import BrokerChannels
from klamm_server.rpc.retries import ServerRetries
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)

RETRY = Backoff(initial_ms=20, max_ms=1_000)
CLIENT_ID = "klamm-coordinator"
RECORD_OVERHEAD_BYTES = 32
"""An upper bound of the bytes that a record needs in addition to its key and value."""
REQUEST_TIMEOUT_MS = 5_000
"""How long one attempt may take. The shard decides how long a request waits for its write."""
_LAST_EPOCH = 2**15 - 1
"""The epoch that fences a former producer id. The controller gives this epoch to no owner."""

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_NOT_RETRIED = frozenset({ErrorCode.CORRUPT_MESSAGE})
"""Errors that are retriable in Kafka, because the network may have corrupted the batch. A retry here would fail
again."""

OnDecided = Callable[[int, ErrorCode], None]
"""Called for each decided write, in order, with its id and the broker's error, which is NONE if the write is in the
log."""


class _QueuedWrite(NamedTuple):
    write: LogWrite[Any]
    records: list[RawRecord]
    size_bytes: int

    def goes_with(self, other: _QueuedWrite) -> bool:
        """Returns True if both writes may be in one batch."""
        return self.write.producer == other.write.producer and not (self.write.marker or other.write.marker)


class FencedError(KlammError):
    """Raised when another coordinator owns the shard now."""


class LogLink:
    """The log of one shard during one assignment. The caller uses `claim`, then `load`, then `append` and `run`."""

    def __init__(
        self,
        topic: ShardTopic,
        shard: int,
        writer: ShardImage,
        channels: BrokerChannels,
        *,
        clock: Clock,
        rng: random.Random,
        append_max_bytes: int,
        load_buffer_bytes: int,
        load_slots: asyncio.Semaphore,
        memory: WriteMemory,
    ) -> None:
        self._topic = topic
        self._shard = shard
        self._writer = writer
        self._channels = channels
        self._clock = clock
        self._rng = rng
        self._append_max_bytes = append_max_bytes
        self._load_buffer_bytes = load_buffer_bytes
        self._load_slots = load_slots
        self._memory = memory
        self._waiting_bytes = 0
        """The bytes of this shard's writes that are not decided. They are part of `_memory`."""
        self._sequence = 0
        self._end_offset = -1
        """The end of the log after the last write that was appended, or -1 if it is not known."""
        self._queue: deque[_QueuedWrite] = deque()
        self._has_queued = asyncio.Event()

    @property
    def topic_name(self) -> str:
        """The topic that the shard is a partition of."""
        return self._topic.name

    @property
    def coordinator_epoch(self) -> int:
        """The epoch of this assignment of the shard. A later owner has a greater epoch."""
        return self._writer.coordinator_epoch

    async def claim(self) -> tuple[int, int]:
        """Becomes the only writer of the log. Returns the first offset and the end offset of the records to load.

        Raises FencedError if a later owner has claimed the log already."""
        if self._writer.former_producer_id is not None:
            await self._fence(self._writer.former_producer_id)
        produced = await self._produce([self._encode(self._topic.claim)])
        _raise_for_refusal(produced)
        return produced.log_start_offset, produced.base_offset

    async def _fence(self, producer_id: int) -> None:
        """Makes the brokers refuse all writes with this producer id, which no owner uses any more."""
        batch = encode_batch(
            [self._encode(self._topic.claim)], producer_id=producer_id, producer_epoch=_LAST_EPOCH, base_sequence=0
        )
        fence = WriterFence(producer_id=producer_id, producer_epoch=_LAST_EPOCH)
        _raise_for_refusal(await self._send(batch, fence))

    async def load(self, start_offset: int, end_offset: int, replay: Callable[[memoryview], Awaitable[None]]) -> None:
        """Fetches whole batches from `start_offset` to before `end_offset`, and passes them to `replay`, a buffer at a
        time.

        The number of load slots bounds how many loads hold a buffer at once. Other loads wait for a slot."""
        position, retries = start_offset, self._retries("load")
        while position < end_offset:
            async with self._load_slots:
                part, records = await self._try_fetch(self._fetch_request(position))
                code = ErrorCode.of(part.error_code)
                if code is ErrorCode.NONE or code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    if records:
                        await replay(records)
                    position = _next_offset(records, part, position)
                    retries.reset()
                    continue
            await retries.pause(f"{code.name} {part.error_message}")

    def append(self, write: LogWrite[Any]) -> None:
        """Queues a write. The writes of one turn of the event loop are sent together."""
        records = [self._encode(record) for record in write.records]
        size_bytes = sum(len(key or b"") + len(value or b"") for _, key, value, _ in records)
        size_bytes += RECORD_OVERHEAD_BYTES * len(records)
        self._memory.take(size_bytes)
        self._waiting_bytes += size_bytes
        self._queue.append(_QueuedWrite(write, records, size_bytes))
        self._has_queued.set()

    @property
    def admits_writes(self) -> bool:
        """True while the coordinator may take further writes."""
        return not self._memory.is_full

    def close(self) -> None:
        """Gives back the memory of all waiting writes, because the coordinator drops the shard."""
        self._memory.give_back(self._waiting_bytes)
        self._waiting_bytes = 0

    async def run(self, on_decided: OnDecided) -> None:
        """Appends queued writes until the task is cancelled. Raises FencedError when another coordinator owns the
        shard."""
        while True:
            await self._has_queued.wait()
            while self._queue:
                writes = self._take_batch()
                code = await self._append_batch(writes)
                if code in _TOO_LARGE and len(writes) > 1:
                    # The topic's bound is lower than ours, so the writes may fit into smaller batches.
                    self._append_max_bytes = sum(write.size_bytes for write in writes) // 2
                    self._queue.extendleft(reversed(writes))
                    continue
                for write in writes:
                    self._memory.give_back(write.size_bytes)
                    self._waiting_bytes -= write.size_bytes
                    on_decided(write.write.write_id, code)
            self._has_queued.clear()

    async def _append_batch(self, writes: list[_QueuedWrite]) -> ErrorCode:
        records = [record for write in writes for record in write.records]
        producer = writes[0].write.producer
        if producer is not None:
            return await self._append_of(producer, writes[0].write.marker, records)
        produced = await self._produce(records)
        code = ErrorCode.of(produced.error_code)
        if code in _FENCED:
            _raise_for_refusal(produced)
        assert code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, (
            f"{self._topic.name}-{self._shard}: the log lost acknowledged writes ({produced.error_message})"
        )
        return code

    async def _append_of(self, producer: TxnProducer, marker: TxnMarker | None, records: list[RawRecord]) -> ErrorCode:
        """Appends a batch of a transaction, or its marker."""
        if marker is None:
            batch = encode_batch(
                records, producer_id=producer.producer_id, producer_epoch=producer.epoch, is_transactional=True
            )
        else:
            batch = end_transaction_marker(
                ControlRecordType.COMMIT if marker.committed else ControlRecordType.ABORT,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp_ms=self._clock.wall_ms(),
            )
        version = 0 if marker is None else marker.transaction_version
        code = await self._append_fenced(batch, version, max(1, len(records)))
        while code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Another client has written to the topic. No copy of the batch is in the log, and none will be appended.
            await self._find_end()
            code = await self._append_fenced(batch, version, max(1, len(records)))
        if code in _FENCED:
            # Find out whether the transaction's producer or this owner is fenced: append a record of our own.
            await self._find_end()
        return code

    async def _append_fenced(self, batch: bytes, transaction_version: int, record_count: int) -> ErrorCode:
        fence = self._fenced_by_us()
        fence.transaction_version = transaction_version
        fence.base_offset = self._end_offset
        produced = await self._send(batch, fence)
        if not produced.error_code:
            self._end_offset = produced.base_offset + record_count
        return ErrorCode.of(produced.error_code)

    async def _find_end(self) -> None:
        """Finds the log's end by appending a record of our own. Raises FencedError, or the exception of another
        refusal."""
        before = self._end_offset
        _raise_for_refusal(await self._produce([self._encode(self._topic.claim)]))
        assert self._end_offset > before, (
            f"{self._topic.name}-{self._shard}: the log lost acknowledged writes, it ends at {self._end_offset}"
        )

    def _take_batch(self) -> list[_QueuedWrite]:
        """Removes and returns the next writes that fit into one append, at least one."""
        writes = [self._queue.popleft()]
        size_bytes = writes[0].size_bytes
        while self._queue and size_bytes + self._queue[0].size_bytes <= self._append_max_bytes:
            if not writes[0].goes_with(self._queue[0]):
                break
            writes.append(self._queue.popleft())
            size_bytes += writes[-1].size_bytes
        return writes

    def _encode(self, record: Any) -> RawRecord:
        return (self._clock.wall_ms(), *self._topic.encode(record), ())

    async def _produce(self, records: list[RawRecord]) -> ProducedPartition:
        """Appends a batch of this owner. A batch that was appended uses up its sequence numbers."""
        batch = encode_batch(
            records,
            producer_id=self._writer.producer_id,
            producer_epoch=self._writer.writer_epoch,
            base_sequence=self._sequence,
        )
        produced = await self._send(batch, self._fenced_by_us())
        if not produced.error_code:
            self._sequence = increment_sequence(self._sequence, len(records))
            self._end_offset = produced.base_offset + len(records)
        return produced

    def _fenced_by_us(self) -> WriterFence:
        return WriterFence(producer_id=self._writer.producer_id, producer_epoch=self._writer.writer_epoch)

    async def _send(self, batch: bytes, fence: WriterFence) -> ProducedPartition:
        """Sends the batch to the partition's leader until the leader gives a definite answer, and returns the
        answer."""

        async def attempt() -> ProducedPartition:
            produced = await self._try_produce(batch, fence)
            code = ErrorCode.of(produced.error_code)
            if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                produced.error_code = ErrorCode.NONE
            elif code.retriable and code not in _NOT_RETRIED:
                raise code.exception(produced.error_message)
            return produced

        return await retrying(attempt, self._retries("append"))

    async def _try_produce(self, batch: bytes, fence: WriterFence | None) -> ProducedPartition:
        stub = self._channels.leader_of(self._topic.name, self._shard)
        if stub is None:
            return ProducedPartition(error_code=ErrorCode.LEADER_NOT_AVAILABLE)
        partition = ProducePartition(
            topic=self._topic.name,
            partition=self._shard,
            records_bytes=len(batch),
            writer=fence,
            current_leader_epoch=self._channels.leader_epoch_of(self._topic.name, self._shard),
        )
        header = ProduceHeader(acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, client_id=CLIENT_ID, partitions=[partition])
        try:
            response = await stub.produce(encode_framed(header, [batch]), timeout_ms=2 * REQUEST_TIMEOUT_MS)
        except BrokerError as error:
            return ProducedPartition(error_code=ErrorCode.NETWORK_EXCEPTION, error_message=error.message)
        return response.partitions[0]

    def _fetch_request(self, position: int) -> FetchRequest:
        partition = FetchPartition(
            topic=self._topic.name,
            partition=self._shard,
            fetch_offset=position,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            max_bytes=self._load_buffer_bytes,
        )
        return FetchRequest(
            client_id=CLIENT_ID,
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=self._load_buffer_bytes,
            partitions=[partition],
        )

    async def _try_fetch(self, request: FetchRequest) -> tuple[FetchedPartition, memoryview]:
        nothing = memoryview(b"")
        stub = self._channels.leader_of(self._topic.name, self._shard)
        if stub is None:
            return FetchedPartition(error_code=ErrorCode.LEADER_NOT_AVAILABLE), nothing
        try:
            message = await stub.fetch(request, timeout_ms=2 * REQUEST_TIMEOUT_MS)
        except BrokerError as error:
            return FetchedPartition(error_code=ErrorCode.NETWORK_EXCEPTION, error_message=error.message), nothing
        header, records = decode_framed(message, FetchHeader)
        return header.partitions[0], records

    def _retries(self, what: str) -> ServerRetries:
        # For the first seconds, the cause is usually a leader that moves, or a topic whose fifty partitions are being
        # created.
        return ServerRetries(
            f"shard {what}", f"{self._topic.name}-{self._shard}", RETRY, self._rng, warn_from=10, warn_every=10
        )


def _next_offset(records: memoryview, part: FetchedPartition, position: int) -> int:
    """Returns the offset to fetch next. Raises the exception of OFFSET_OUT_OF_RANGE if the log ends before
    `position`."""
    if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        if part.log_start_offset <= position:
            raise ErrorCode.OFFSET_OUT_OF_RANGE.exception(f"offset {position} is not in the log: {part.error_message}")
        return part.log_start_offset
    header = last_header(records)
    return position if header is None else header.next_offset


def _raise_for_refusal(produced: ProducedPartition) -> None:
    code = ErrorCode.of(produced.error_code)
    if code in _FENCED:
        raise FencedError(f"{code.name}: {produced.error_message}")
    if code is not ErrorCode.NONE:
        raise code.exception(produced.error_message)
