"""Tests transactions at a broker: verification by the coordinator, markers, and reads of committed records."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from klamm.errors import ErrorCode
from klamm.model import TRANSACTION_STATE_TOPIC
from klamm.records import ControlRecordType, encode_batch, end_transaction_marker, iter_headers
from klamm.wire.framed import encode_framed
from klamm.wire.v1 import broker_pb2 as b
from klamm.wire.v1 import metadata_pb2 as m
from klamm.wire.v1.common_pb2 import (
    Endpoint,
    PartitionResult,
    TopicPartitions,
    TxnMarker,
    WriteTxnMarkersRequest,
)
from klamm.wire.v1.coordinator_pb2 import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from tests.support.broker_harness import RunningBroker, ScriptedController, StartBroker, serving, split_fetch
from tests.support.waiting import until

PRODUCER = 77
FLIGHTS = [TopicPartitions(topic="flights", partitions=[0])]


class ScriptedCoordinator:
    """A coordinator that accepts, or answers with the next of `errors`.

    It holds answers back while `gate` is closed.
    """

    def __init__(self) -> None:
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.errors: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def add_partitions_to_txn(self, request: AddPartitionsToTxnRequest, context: Any) -> Any:
        self.asked.append(request)
        await self.gate.wait()
        error = self.errors.pop(0) if self.errors else 0
        results = [
            PartitionResult(topic=topic.topic, partition=number, error_code=error)
            for topic in request.topics
            for number in topic.partitions
        ]
        return AddPartitionsToTxnResponse(partitions=results)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        async def unexpected(request: Any, context: Any) -> Any:
            raise NotImplementedError(name)

        return unexpected


@contextlib.asynccontextmanager
async def transactions(
    start_broker: StartBroker,
) -> AsyncIterator[tuple[RunningBroker, ScriptedController, ScriptedCoordinator]]:
    coordinator = ScriptedCoordinator()
    # With the default, a busy machine leaves the broker too little time to ask again.
    configs = {"add.partitions.to.txn.retry.backoff.max.ms": "60000"}
    async with serving({COORDINATOR: coordinator}) as port, start_broker(configs=configs) as (broker, controller):
        await controller.create_topic(TRANSACTION_STATE_TOPIC)
        registration = m.RegisterCoordinatorRecord(
            coordinator_id=8, coordinator_epoch=1, endpoint=Endpoint(host="localhost", port=port)
        )
        assignment = m.ShardAssignmentRecord(
            topic=TRANSACTION_STATE_TOPIC, shard=0, coordinator_id=8, producer_id=1, writer_epoch=1
        )
        await controller.add(m.MetadataRecord(register_coordinator=registration))
        await controller.add(m.MetadataRecord(shard_assignment=assignment))
        await controller.create_topic("flights", 2)
        await broker.wait_for_topic("flights", 2)
        yield broker, controller, coordinator


def records(epoch: int, sequence: int = 0, value: bytes = b"v") -> bytes:
    return encode_batch(
        [(int(time.time() * 1000), None, value, ())],  # markers are of now: an old record would be alone in its segment
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


async def send(broker: RunningBroker, *parts: tuple[int, bytes], transactional_id: str = "tx") -> list[int]:
    """Sends the batches to partitions of the topic in one request. Returns the error codes."""
    header = b.ProduceHeader(
        acks=-1,
        timeout_ms=60_000,
        transactional_id=transactional_id,
        partitions=[
            b.ProducePartition(topic="flights", partition=number, records_bytes=len(data)) for number, data in parts
        ],
    )
    response = await broker.stub.produce(encode_framed(header, [data for _, data in parts]))
    return [partition.error_code for partition in response.partitions]


async def end(broker: RunningBroker, epoch: int, *, committed: bool, coordinator_epoch: int = 1) -> int:
    marker = TxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        committed=committed,
        coordinator_epoch=coordinator_epoch,
        topics=FLIGHTS,
        transaction_version=2,
    )
    response = await broker.stub.write_txn_markers(WriteTxnMarkersRequest(markers=[marker]))
    [written] = response.markers
    assert written.producer_id == PRODUCER
    return written.partitions[0].error_code


async def latest(broker: RunningBroker, isolation_level: int) -> int:
    wanted = b.ListOffsetsPartition(topic="flights", partition=0, timestamp_ms=-1, current_leader_epoch=-1)
    request = b.ListOffsetsRequest(isolation_level=isolation_level, partitions=[wanted])
    return (await broker.stub.list_offsets(request)).partitions[0].offset


def test_the_coordinator_verifies_a_transaction_once_and_a_marker_ends_it(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with transactions(start_broker) as (broker, _, coordinator):
            assert await send(broker, (0, records(0)), (1, records(0))) == [0, 0]
            assert await send(broker, (0, records(0, 1))) == [0]
            [asked] = coordinator.asked
            assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("tx", PRODUCER, 0)
            assert list(asked.topics) == [TopicPartitions(topic="flights", partitions=[0, 1])]
            assert (await latest(broker, 0), await latest(broker, 1)) == (2, 0)
            answer, data = await broker.fetch("flights", isolation_level=1)
            assert (answer.high_watermark, answer.last_stable_offset, data) == (2, 0, b"")
            described = await broker.stub.describe_producers(b.DescribeProducersRequest(topics=FLIGHTS))
            [one] = described.partitions[0].producers
            assert (one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset) == (
                PRODUCER,
                0,
                1,
                0,
            )
            assert await end(broker, 1, committed=False) == 0
            answer, data = await broker.fetch("flights", isolation_level=1)
            assert answer.last_stable_offset == 3
            assert [
                (aborted_transaction.producer_id, aborted_transaction.first_offset)
                for aborted_transaction in answer.aborted_transactions
            ] == [(PRODUCER, 0)]
            assert [header.is_control for _, header in iter_headers(data)] == [False, False, True]
            assert not (await broker.fetch("flights"))[0].aborted_transactions

    asyncio.run(scenario())


def test_a_read_committed_fetch_waits_for_the_transaction_marker(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with transactions(start_broker) as (broker, _, _):
            request = b.FetchRequest(
                replica_id=-1,
                max_wait_ms=60_000,
                min_bytes=1,
                max_bytes=10**6,
                isolation_level=1,
                partitions=[b.FetchPartition(topic="flights", current_leader_epoch=-1, max_bytes=10**6)],
            )
            waiting = asyncio.ensure_future(broker.stub.fetch(request))
            await until(lambda: broker.parked_fetches == 1)
            assert await send(broker, (0, records(0))) == [0]
            assert broker.parked_fetches == 1
            assert await end(broker, 1, committed=True) == 0
            [(answer, data)] = split_fetch(await waiting)
            assert (answer.last_stable_offset, len(list(iter_headers(data)))) == (2, 2)

    asyncio.run(scenario())


def test_a_record_is_refused_if_its_marker_came_during_the_verification(start_broker: StartBroker) -> None:
    """Otherwise the record would stay in the log as a hanging transaction that no marker ends (KIP-890)."""

    async def scenario() -> None:
        async with transactions(start_broker) as (broker, _, coordinator):
            coordinator.gate.clear()
            late = asyncio.create_task(send(broker, (0, records(0))))
            await until(lambda: bool(coordinator.asked))
            marker = TxnMarker(producer_id=PRODUCER, producer_epoch=0, committed=False, topics=FLIGHTS)
            await broker.stub.write_txn_markers(WriteTxnMarkersRequest(markers=[marker]))
            coordinator.gate.set()
            assert await late == [ErrorCode.INVALID_TXN_STATE]
            assert await latest(broker, 0) == await latest(broker, 1) == 1

    asyncio.run(scenario())


def test_a_transactional_record_that_the_coordinator_refuses_is_not_written(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with transactions(start_broker) as (broker, _, coordinator):
            for said, answered in (
                (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
                (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
                (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
            ):
                coordinator.errors = [said]
                assert await send(broker, (0, records(0))) == [answered]
            assert await send(broker, (0, records(0)), transactional_id="") == [ErrorCode.INVALID_TXN_STATE]
            assert await latest(broker, 0) == 0
            coordinator.errors = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
            assert await send(broker, (0, records(0))) == [0]

    asyncio.run(scenario())


def test_records_and_markers_with_a_stale_producer_or_coordinator_epoch_are_refused(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with transactions(start_broker) as (broker, _, _):
            assert await send(broker, (0, records(3))) == [0]
            assert await end(broker, 4, committed=True, coordinator_epoch=5) == 0
            assert await send(broker, (0, records(3, 1))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
            assert await end(broker, 4, committed=True, coordinator_epoch=5) == 0  # the log has this marker already
            assert await end(broker, 5, committed=True, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
            assert await send(broker, (0, records(4))) == [0]
            assert await end(broker, 4, committed=True, coordinator_epoch=5) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await latest(broker, 1) == 2

    asyncio.run(scenario())


async def write_shard(
    broker: Any, data: bytes, writer_epoch: int | None, base_offset: int | None = None
) -> b.ProducedPartition:
    part = b.ProducePartition(topic="__consumer_offsets", records_bytes=len(data))
    if writer_epoch is not None:
        part.writer.producer_id, part.writer.producer_epoch = 1, writer_epoch
        if base_offset is not None:
            part.writer.base_offset = base_offset
    header = b.ProduceHeader(acks=-1, timeout_ms=1_000, partitions=[part])
    response = await broker.stub.produce(encode_framed(header, [data]))
    return response.partitions[0]


def test_a_late_duplicate_of_a_coordinators_batch_is_not_appended(start_broker: StartBroker) -> None:
    """The producer follows the rules from before KIP-890, so its next transaction has the same epoch."""
    offsets = encode_batch([(1_000, b"k", b"v", ())] * 2, producer_id=PRODUCER, producer_epoch=0, is_transactional=True)
    marker = end_transaction_marker(
        ControlRecordType.ABORT, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=1, timestamp_ms=1_000
    )

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("__consumer_offsets")
            await broker.wait_for_topic("__consumer_offsets")
            claim = encode_batch([(1_000, b"k", None, ())], producer_id=1, producer_epoch=0, base_sequence=0)
            assert (await write_shard(broker, claim, None)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert (await write_shard(broker, claim, 0)).base_offset == 0
            for data, base_offset in ((offsets, 1), (marker, 3), (offsets, 4), (marker, 6)):
                for _ in range(2):
                    written = await write_shard(broker, data, 0, base_offset)
                    assert (written.error_code, written.base_offset) == (0, base_offset)
            for data, base_offset in ((offsets, 1), (marker, 3)):
                assert (await write_shard(broker, data, 0, base_offset)).base_offset == base_offset
            for data, base_offset in (
                (offsets, 3),
                (marker, 1),
                (offsets, 2),
                (offsets, 8),
                (marker, 8),
                (offsets, -1),
            ):
                refused = await write_shard(broker, data, 0, base_offset)
                assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, base_offset
            assert (await write_shard(broker, offsets, 0, 7)).base_offset == 7

    asyncio.run(scenario())


def test_only_the_shards_owner_may_write_transactions_to_an_internal_topic(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("__consumer_offsets")
            await broker.wait_for_topic("__consumer_offsets")

            async def write(data: bytes, writer_epoch: int | None) -> int:
                return (await write_shard(broker, data, writer_epoch)).error_code

            claim = encode_batch([(1_000, b"k", None, ())], producer_id=1, producer_epoch=2, base_sequence=0)
            offsets = encode_batch(
                [(1_000, b"k", b"v", ())], producer_id=PRODUCER, producer_epoch=0, is_transactional=True
            )
            marker = end_transaction_marker(
                ControlRecordType.COMMIT,
                producer_id=PRODUCER,
                producer_epoch=1,
                coordinator_epoch=1,
                timestamp_ms=1_000,
            )
            assert await write(claim, 2) == 0
            for data in (offsets, marker):
                assert await write(data, None) == ErrorCode.INVALID_TOPIC_EXCEPTION
                assert await write(data, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
                assert await write(data, 2) == 0
            assert await write(offsets, 2) == ErrorCode.INVALID_PRODUCER_EPOCH

    asyncio.run(scenario())
