"""Tests requests of gRPC clients that leave out each field whose value they do not know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from klamm.errors import ErrorCode
from klamm.wire.framed import encode_framed
from klamm.wire.v1 import broker_pb2 as b
from tests.support.broker_harness import RunningBroker, ScriptedController, StartBroker, batch, split_fetch
from tests.support.waiting import patience, until


@contextlib.asynccontextmanager
async def after_a_change_of_leader(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    """Yields a broker that leads partition 0 of `flights` in leader epoch 2, with three batches of epoch 0."""
    async with start_broker() as (broker, controller):
        await controller.create_topic("flights", replicas=(1, 2), isr=(1,))
        await broker.wait_for_topic("flights")
        for _ in range(3):
            await broker.produce("flights", batch(1))
        await controller.change_leader("flights", 0, 1)
        await controller.change_leader("flights", 0, 1)
        await controller.create_topic("later")
        await broker.wait_for_topic("later")
        yield broker


def test_a_fetch_without_a_leader_epoch_works_after_a_change_of_leader(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with after_a_change_of_leader(start_broker) as broker:
            wanted = b.FetchPartition(topic="flights", max_bytes=1024**2)
            request = b.FetchRequest(replica_id=-1, max_bytes=1024**2, partitions=[wanted])
            [(answer, records)] = split_fetch(await broker.stub.fetch(request))
            assert (answer.error_code, len(records)) == (0, 3 * len(batch(1)))
            call = broker.stub.fetch_stream(request)
            async with asyncio.timeout(patience()):
                [(streamed, _)] = split_fetch(await call.read())
            call.cancel()
            assert (streamed.error_code, streamed.records_bytes) == (0, len(records))

    asyncio.run(scenario())


def test_a_fetch_without_a_last_epoch_diverges_nowhere(start_broker: StartBroker) -> None:
    """Epoch 0 ended at offset 3. A reader of offset 4 that had epoch 0 as its last one would have diverged."""

    async def scenario() -> None:
        async with after_a_change_of_leader(start_broker) as broker:
            await broker.produce("flights", batch(1), current_leader_epoch=2)
            wanted = b.FetchPartition(topic="flights", fetch_offset=4, current_leader_epoch=-1, max_bytes=1024**2)
            request = b.FetchRequest(replica_id=-1, max_bytes=1024**2, partitions=[wanted])
            [(answer, _)] = split_fetch(await broker.stub.fetch(request))
            assert not answer.HasField("diverging")
            assert answer.error_code == 0

    asyncio.run(scenario())


def test_a_fetch_without_limits_returns_more_than_one_batch(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with after_a_change_of_leader(start_broker) as broker:
            wanted = b.FetchPartition(topic="flights", current_leader_epoch=-1, last_fetched_epoch=-1)
            [(answer, records)] = split_fetch(
                await broker.stub.fetch(b.FetchRequest(replica_id=-1, partitions=[wanted]))
            )
            assert (answer.error_code, len(records)) == (0, 3 * len(batch(1)))

    asyncio.run(scenario())


def test_a_fetch_without_a_replica_id_is_a_consumers(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with after_a_change_of_leader(start_broker) as broker:
            wanted = b.FetchPartition(
                topic="flights", current_leader_epoch=-1, last_fetched_epoch=-1, max_bytes=1024**2
            )
            request = b.FetchRequest(max_bytes=1024**2, partitions=[wanted])
            [(answer, _)] = split_fetch(await broker.stub.fetch(request))
            assert answer.error_code == 0

    asyncio.run(scenario())


def test_look_ups_without_a_leader_epoch_work_after_a_change_of_leader(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with after_a_change_of_leader(start_broker) as broker:
            wanted = b.ListOffsetsPartition(topic="flights", timestamp_ms=-1)
            listed = await broker.stub.list_offsets(b.ListOffsetsRequest(partitions=[wanted]))
            assert [(partition.error_code, partition.offset) for partition in listed.partitions] == [(0, 3)]
            query = b.EpochQuery(topic="flights", leader_epoch=0)
            ends = await broker.stub.offset_for_leader_epoch(b.OffsetForLeaderEpochRequest(partitions=[query]))
            assert [(partition.error_code, partition.end_offset) for partition in ends.partitions] == [(0, 3)]

    asyncio.run(scenario())


def test_an_epoch_of_zero_is_fenced_if_the_client_sends_it(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with after_a_change_of_leader(start_broker) as broker:
            answer, _ = await broker.fetch("flights", current_leader_epoch=0)
            assert b.FetchPartition(current_leader_epoch=0).SerializeToString() == b"\x20\x00"
            assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH

    asyncio.run(scenario())


def test_a_produce_without_a_timeout_waits_for_the_replicas(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await replicated_topic(broker, controller)
            records = batch(1)
            part = b.ProducePartition(topic="flights", records_bytes=len(records))
            produced = broker.stub.produce(encode_framed(b.ProduceHeader(acks=-1, partitions=[part]), [records]))

            async def waits() -> bool:
                return broker.parked_produces == 1 or produced.done()

            await until(waits)
            await controller.change_isr("flights", 0, [1])
            [answer] = (await produced).partitions
            assert (answer.error_code, answer.base_offset) == (0, 0)

    asyncio.run(scenario())


async def replicated_topic(broker: RunningBroker, controller: ScriptedController) -> None:
    await controller.create_topic("flights", replicas=(1, 2))
    await broker.wait_for_topic("flights")
