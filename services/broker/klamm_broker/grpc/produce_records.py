"""ProduceRecords over gRPC: plain records as protobuf messages, which this broker makes into batches.

Rights, limits, acknowledgements and quotas are those of Produce, because the same handler appends the batches. The
rights are checked before that too, because an unauthorized caller must not cost time or learn a partition. A large
request is prepared on a thread, because to hash long keys and to encode many records would take the event loop too
long. Only one request at a time has a thread, so that the event loop keeps its share of the processor.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from klamm.acls import ResourceType
from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.model import TopicPartition
from klamm.process import PROCESS
from klamm.quotas import PRODUCER_BYTE_RATE
from klamm.records import RawRecord
from klamm.wire.calls import CallContext
from klamm.wire.v1.broker_pb2 import PlainRecord, ProducedRecord, ProduceRecordsRequest, ProduceRecordsResponse
from klamm_broker.grpc.client_hosts import client_host
from klamm_broker.handlers.plain_records import (
    BATCH_BYTES_MAX,
    PlacedRecords,
    RecordOutcome,
    Spread,
    invalid_records,
    outcomes_of,
    place,
)
from klamm_broker.handlers.produce import ACKS_ALL, PartitionRecords, Produce, ProduceHandler, unwritable_topics
from klamm_broker.handlers.turns import end_long_turn
from klamm_broker.io.request_memory import RequestMemory
from klamm_broker.messages.nodes import BrokerNodes
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.rpc.absent_fields import given
from klamm_server.rpc.call_throttle import CallThrottle, ThrottledCaller
from klamm_server.runtime.charged import charged
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.runtime.waiting import Waiting
from klamm_server.security.session import CALLER, refusal

_Prepared = tuple[list[RawRecord], list[RecordOutcome], list[PlacedRecords]]
"""The records, an outcome for each if one of them is invalid, and otherwise the records by partition."""
_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]
_COPIES = 2
"""The records are in memory twice: as messages and as batches."""
_INLINE_BYTES_MAX = 16_384
_INLINE_RECORDS_MAX = 200
"""A request with more bytes or records is prepared on a thread."""


class ProduceRecordsRpc:
    """Handles ProduceRecords. `request_timeout_ms` is the time-out of a request that names none. `rng` chooses the
    partition of records without a key."""

    def __init__(
        self,
        handler: ProduceHandler,
        replicas: ReplicaManager,
        nodes: BrokerNodes,
        memory: RequestMemory,
        throttle: CallThrottle,
        *,
        request_timeout_ms: int,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._handler = handler
        self._replicas = replicas
        self._nodes = nodes
        self._memory = memory
        self._throttle = throttle
        self._request_timeout_ms = request_timeout_ms
        self._clock = clock
        self._rng = rng
        self._thread = asyncio.Lock()
        """Held by the request that is prepared on a thread."""

    async def produce_records(self, request: ProduceRecordsRequest, context: CallContext) -> ProduceRecordsResponse:
        _check(request)
        size_bytes = request.ByteSize()
        caller = self._throttle.caller_about([request.topic], request.client_id)
        try:
            if caller is not None:
                await caller.wait_turn(PRODUCER_BYTE_RATE, size_bytes)
            self._memory.take(_COPIES * size_bytes)
        except BrokerError as error:
            refused = RecordOutcome(given(request, "partition", -1), error.code, error.message)
            return await _response([refused] * len(request.records))
        try:
            if caller is None:
                return await self._served(request, size_bytes, context, None)
            response = await charged(self._served(request, size_bytes, context, caller), caller.charge_time)
            response.throttle_time_ms = caller.charge_bytes(PRODUCER_BYTE_RATE, size_bytes)
            return response
        finally:
            self._memory.give_back(_COPIES * size_bytes)

    async def _served(
        self, request: ProduceRecordsRequest, size_bytes: int, context: CallContext, caller: ThrottledCaller | None
    ) -> ProduceRecordsResponse:
        if CALLER.get() is not None and unwritable_topics({request.topic}):
            denied = refusal(ResourceType.TOPIC)
            return await _response([RecordOutcome(-1, denied.code, denied.message)] * len(request.records))
        spread = self._spread(request)
        max_message_bytes = self._max_message_bytes(request.topic, spread)
        now_ms = self._clock.wall_ms()

        def prepare() -> _Prepared:
            records = [_raw(record, now_ms) for record in request.records]
            if invalid := invalid_records(records):
                return records, invalid, []
            return records, [], place(records, spread, self._rng, max_message_bytes=max_message_bytes)

        is_short = size_bytes <= _INLINE_BYTES_MAX and len(request.records) <= _INLINE_RECORDS_MAX
        records, invalid, placed = prepare() if is_short else await self._on_thread(prepare, caller)
        if invalid:
            return await _response(invalid)
        answers = self._handler.serve(self._produce(request, placed, context))
        if isinstance(answers, Waiting):
            answers = await answers
        by_name = {answer.topic_partition: answer for answer in answers}
        outcomes = outcomes_of(records, placed, by_name, request.topic, max_message_bytes=max_message_bytes)
        await end_long_turn(outcomes)
        response = await _response(outcomes)
        response.node_endpoints.extend(self._nodes.leaders(answers))
        return response

    async def _on_thread(self, prepare: Callable[[], _Prepared], caller: ThrottledCaller | None) -> _Prepared:
        """Prepares records on a thread, and charges the caller for the thread's time."""

        def timed() -> tuple[_Prepared, float]:
            thread_s = PROCESS.get().thread_s
            began_s = thread_s()
            return prepare(), thread_s() - began_s

        async with self._thread:
            prepared, took_s = await asyncio.to_thread(timed)
        if caller is not None:
            caller.charge_time(took_s)
        return prepared

    def _produce(
        self, request: ProduceRecordsRequest, placed: Sequence[PlacedRecords], context: CallContext
    ) -> Produce:
        return Produce(
            given(request, "acks", ACKS_ALL),
            given(request, "timeout_ms", self._request_timeout_ms),
            "",
            [
                PartitionRecords(TopicPartition(request.topic, part.partition), memoryview(part.batches))
                for part in placed
            ],
            client_host=client_host(context),
        )

    def _spread(self, request: ProduceRecordsRequest) -> Spread:
        """Returns the partitions among which to choose. If the topic does not exist, the handler refuses its partition
        0."""
        named = request.partition if request.HasField("partition") else None
        topic = self._replicas.image.topic(request.topic)
        if topic is None:
            return Spread(1, (), named)
        mine = self._replicas.broker_id
        led = [partition.partition for partition in topic.partitions if partition.leader == mine]
        return Spread(len(topic.partitions), led, named)

    def _max_message_bytes(self, topic: str, spread: Spread) -> int:
        """Returns the topic's max.message.bytes. A broker that leads no partition of the topic refuses all batches, so
        their size does not matter."""
        replica = self._replicas.get(TopicPartition(topic, spread.led[0])) if spread.led else None
        return BATCH_BYTES_MAX if replica is None else replica.log.config.max_message_bytes


def _check(request: ProduceRecordsRequest) -> None:
    if not request.topic:
        raise _InvalidRequestError("the request has no topic; expected the name of one")
    if not request.records:
        raise _InvalidRequestError("the request has no records; expected at least one")


def _raw(record: PlainRecord, now_ms: int) -> RawRecord:
    return (
        given(record, "timestamp_ms", now_ms),
        record.key if record.HasField("key") else None,
        record.value if record.HasField("value") else None,
        tuple((header.key, header.value if header.HasField("value") else None) for header in record.headers),
    )


async def _response(outcomes: Sequence[RecordOutcome]) -> ProduceRecordsResponse:
    return ProduceRecordsResponse(records=await map_in_slices(_encode, outcomes))


def _encode(outcome: RecordOutcome) -> ProducedRecord:
    encoded = ProducedRecord(
        partition=outcome.partition,
        offset=outcome.offset,
        error_code=outcome.error_code,
        error_message=outcome.error_message,
    )
    if outcome.log_append_time_ms >= 0:
        encoded.log_append_time_ms = outcome.log_append_time_ms
    if outcome.current_leader >= 0:
        encoded.current_leader = outcome.current_leader
    return encoded
