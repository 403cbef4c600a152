"""Tests a leader as its followers and its controller see it over gRPC.

The tests send the follower's requests by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc import aio

from klamm.errors import ErrorCode
from klamm.model import TopicPartition
from klamm.wire.framed import decode_framed, split_records
from klamm.wire.v1 import broker_pb2 as b
from klamm.wire.v1 import controller_pb2 as c
from klamm.wire.v1 import metadata_pb2 as m
from klamm.wire.v1.broker_rpc import REPLICATION
from klamm.wire.v1.common_pb2 import Endpoint
from tests.support.broker_harness import (
    LONG_MS,
    RunningBroker,
    ScriptedController,
    StartBroker,
    batch,
    fetch_request,
    produce_request,
    split_fetch,
)
from tests.support.raw_stub import RawStub
from tests.support.waiting import patience, until

ENDPOINT_2 = Endpoint(host="two", port=2)


class Follower:
    """Broker 2, a follower that sends only the requests that the test asks for."""

    def __init__(self, broker: RunningBroker, topic_id: bytes) -> None:
        self._topic_id = topic_id
        self._call: Any = RawStub(broker.channel, REPLICATION).replica_fetch()

    async def ask(self, *positions: tuple[int, int, int], max_wait_ms: int = LONG_MS, min_bytes: int = 1) -> None:
        """Sends one fetch request. Each position is (partition, fetch offset, leader epoch)."""
        request = b.ReplicaFetchRequest(
            replica_id=2,
            broker_epoch=20,
            session_id=1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=10**6,
            positions=[
                b.ReplicaPosition(
                    topic_id=self._topic_id,
                    partition=number,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=leader_epoch if offset else -1,
                    max_bytes=10**6,
                )
                for number, offset, leader_epoch in positions
            ],
        )
        await self._call.write(request)

    async def answer(self) -> list[tuple[b.ReplicatedPartition, bytes]]:
        async with asyncio.timeout(patience()):
            message = await self._call.read()
        assert message is not aio.EOF
        header, records = decode_framed(message, b.ReplicaFetchHeader)
        parts = split_records(records, [part.records_bytes for part in header.partitions])
        return [(part, bytes(data)) for part, data in zip(header.partitions, parts, strict=True)]

    async def end(self) -> None:
        await self._call.done_writing()
        assert await self._call.read() is aio.EOF


@contextlib.asynccontextmanager
async def leading(
    start_broker: StartBroker,
    *,
    isr: tuple[int, ...] = (1, 2),
    controller: ScriptedController | None = None,
    rack: str = "",
    **configs: str,
) -> AsyncIterator[tuple[RunningBroker, ScriptedController, Follower]]:
    """Starts broker 1 as the leader of flights-0 and flights-1. Broker 2, in `rack`, has replicas of both."""
    settings = {key.replace("_", "."): text for key, text in configs.items()}
    async with start_broker(controller=controller, configs=settings) as (broker, controller):
        register = m.RegisterBrokerRecord(
            broker_id=2, broker_epoch=20, incarnation_id=b"2" * 16, fenced=False, rack=rack, endpoint=ENDPOINT_2
        )
        await controller.add(m.MetadataRecord(register_broker=register))
        await controller.create_topic("flights", 2, replicas=(1, 2), isr=isr)
        await broker.wait_for_topic("flights", 2)
        yield broker, controller, Follower(broker, controller.topic_ids["flights"])


async def wait_leader_epoch(broker: RunningBroker, leader_epoch: int) -> None:
    """Waits until the broker leads flights-0 in this leader epoch."""
    partition = broker.server._replicas.get(TopicPartition("flights", 0))
    assert partition is not None
    await until(lambda: partition.leader_epoch == leader_epoch)


def test_a_produce_is_acknowledged_when_the_follower_fetches_the_next_offset(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker) as (broker, _, follower):
            await follower.ask((0, 0, 0), (1, 0, 0))
            assert {part.partition for part, _ in await follower.answer()} == {0, 1}, "where they end is news"
            await follower.ask()
            producing = asyncio.create_task(broker.produce("flights", batch(3), timeout_ms=LONG_MS))
            [(part, records)] = await follower.answer()
            assert (part.partition, part.fetch_offset, part.high_watermark, part.log_end_offset) == (0, 0, 0, 3)
            assert len(records) == len(batch(3))
            assert not producing.done()
            await follower.ask((0, 3, 0))
            assert (await producing).error_code == 0
            [(part, records)] = await follower.answer()
            assert (part.high_watermark, records) == (3, b"")
            await follower.end()

    asyncio.run(scenario())


def test_a_followers_next_fetch_ends_the_wait_of_the_one_before(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker) as (_, _, follower):
            await follower.ask((0, 0, 0))
            await follower.answer()
            await follower.ask()
            await follower.ask((1, 0, 0))
            assert await follower.answer() == []
            assert [part.partition for part, _ in await follower.answer()] == [1]

    asyncio.run(scenario())


def test_a_follower_fetch_waits_for_min_bytes_until_max_wait(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker) as (broker, _, follower):
            await follower.ask((0, 0, 0))
            await follower.answer()
            await follower.ask(min_bytes=2 * len(batch(1)))
            await broker.produce("flights", batch(1), acks=1)
            await broker.produce("flights", batch(1), partition=1, acks=1)
            await broker.produce("flights", batch(1), acks=1)
            [(part, records)] = await follower.answer()
            assert (part.partition, len(records)) == (0, 2 * len(batch(1)))
            await follower.ask((0, 2, 0))
            await follower.answer()
            began_s = time.monotonic()
            await follower.ask(max_wait_ms=100, min_bytes=10**6)
            await broker.produce("flights", batch(1), acks=1)
            assert [len(records) for _, records in await follower.answer()] == [len(batch(1))]
            assert time.monotonic() - began_s >= 0.1

    asyncio.run(scenario())


def test_the_leader_requests_once_to_add_a_caught_up_follower_to_the_isr(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker, isr=(1,)) as (broker, controller, follower):
            await broker.produce("flights", batch(2))
            await follower.ask((0, 0, 0))
            await follower.answer()
            await follower.ask((0, 2, 0))
            await until(lambda: bool(controller.isr_changes))
            [change] = controller.isr_changes
            members = [(member.broker_id, member.broker_epoch) for member in change.new_isr]
            assert members == [(1, broker.server._registration.epoch), (2, 20)]
            assert (change.leader_epoch, change.partition_epoch) == (0, 0)
            # From now on the high watermark waits for the follower.
            producing = asyncio.create_task(broker.produce("flights", batch(1), timeout_ms=LONG_MS))
            while not [records for _, records in await follower.answer() if records]:
                await follower.ask()
            assert not producing.done()
            await follower.ask((0, 3, 0))
            assert (await producing).error_code == 0
            assert len(controller.isr_changes) == 1

    asyncio.run(scenario())


class HesitantController(ScriptedController):
    """A controller that answers NOT_CONTROLLER, then loses an answer, and then answers the third request normally."""

    async def alter_partition(self, request: c.AlterPartitionRequest, context: Any) -> c.AlterPartitionResponse:
        granted = await super().alter_partition(request, context)
        if len(self.isr_changes) == 1:
            return c.AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
        if len(self.isr_changes) == 2:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
        return granted


def test_an_isr_change_of_unknown_outcome_is_requested_again_and_holds_the_high_watermark(
    start_broker: StartBroker,
) -> None:
    async def scenario() -> None:
        hesitant = HesitantController()
        async with leading(start_broker, isr=(1,), controller=hesitant) as (broker, controller, follower):
            await follower.ask((0, 0, 0))
            await follower.answer()
            await broker.produce("flights", batch(1), acks=1)
            await until(lambda: len(controller.isr_changes) == 3)
            assert controller.isr_changes[0] == controller.isr_changes[1] == controller.isr_changes[2]
            # The high watermark waits for the follower, whether the follower is in the in-sync set or not.
            assert (await broker.produce("flights", batch(1), timeout_ms=50)).error_code == ErrorCode.REQUEST_TIMED_OUT
            await follower.ask((0, 2, 0))
            assert (await broker.produce("flights", batch(1), timeout_ms=50)).error_code == ErrorCode.REQUEST_TIMED_OUT
            assert len(controller.isr_changes) == 3

    asyncio.run(scenario())


def test_the_leader_requests_to_remove_a_silent_follower_from_the_isr(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        settings = {"replica_lag_time_max_ms": "300", "replica_fetch_wait_max_ms": "100"}
        async with leading(start_broker, **settings) as (broker, controller, _):
            produced = await broker.produce("flights", batch(1), timeout_ms=LONG_MS)
            assert produced.error_code == 0
            [change] = [change for change in controller.isr_changes if change.partition == 0]
            assert [member.broker_id for member in change.new_isr] == [1]

    asyncio.run(scenario())


def test_a_fetch_with_a_newer_leader_epoch_waits_for_the_metadata(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker) as (broker, controller, follower):
            await broker.produce("flights", batch(1), acks=1)
            await follower.ask((0, 0, 1), max_wait_ms=LONG_MS)
            await controller.change_leader("flights", 0, 1)
            [(part, records)] = await follower.answer()
            assert (part.error_code, part.log_end_offset, len(records)) == (0, 1, len(batch(1)))
            await follower.ask((0, 1, 0))
            assert [part.error_code for part, _ in await follower.answer()] == [ErrorCode.FENCED_LEADER_EPOCH]

    asyncio.run(scenario())


def test_list_offsets_fails_until_a_new_leader_knows_its_high_watermark(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker) as (broker, controller, follower):
            await broker.produce("flights", batch(2), acks=1)
            await controller.change_leader("flights", 0, 1)

            async def latest() -> tuple[int, int]:
                wanted = b.ListOffsetsPartition(topic="flights", timestamp_ms=-1, current_leader_epoch=1)
                response = await broker.stub.list_offsets(b.ListOffsetsRequest(partitions=[wanted]))
                return response.partitions[0].error_code, response.partitions[0].offset

            await wait_leader_epoch(broker, 1)
            assert await latest() == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
            await follower.ask((0, 2, 1))
            await follower.answer()
            assert await latest() == (0, 2)

    asyncio.run(scenario())


def test_offset_for_leader_epoch_returns_the_end_of_each_epoch(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker, isr=(1,)) as (broker, controller, _):
            await broker.produce("flights", batch(2))
            await controller.change_leader("flights", 0, 1)
            await wait_leader_epoch(broker, 1)

            async def end_of(epoch: int, **asked: Any) -> tuple[int, int, int]:
                query = b.EpochQuery(topic="flights", leader_epoch=epoch, current_leader_epoch=1)
                query.MergeFrom(b.EpochQuery(**asked))
                request = b.OffsetForLeaderEpochRequest(partitions=[query])
                [found] = (await broker.stub.offset_for_leader_epoch(request)).partitions
                return found.error_code, found.leader_epoch, found.end_offset

            assert await end_of(0) == (0, 0, 2)
            assert await end_of(1) == (0, 1, 2)
            await broker.produce("flights", batch(3))
            assert [await end_of(0), await end_of(1), await end_of(2)] == [(0, 0, 2), (0, 1, 5), (0, -1, -1)]
            assert (await end_of(0, current_leader_epoch=2))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await end_of(0, topic="nowhere"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(scenario())


def test_a_deletion_waits_for_the_followers_on_live_brokers(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker, isr=(1,)) as (broker, controller, follower):
            await broker.produce("flights", batch(3))

            async def delete(before: int, timeout_ms: int) -> tuple[int, int]:
                wanted = b.DeleteRecordsPartition(topic="flights", before_offset=before)
                request = b.DeleteRecordsRequest(partitions=[wanted], timeout_ms=timeout_ms)
                [outcome] = (await broker.stub.delete_records(request)).partitions
                return outcome.error_code, outcome.low_watermark

            assert await delete(1, 50) == (ErrorCode.REQUEST_TIMED_OUT, -1)
            await follower.ask((0, 3, 0))
            await follower.answer()
            deleting = asyncio.create_task(delete(2, LONG_MS))
            await follower.ask()
            [(part, _)] = await follower.answer()
            assert part.log_start_offset == 2
            assert not deleting.done()
            fence = m.BrokerChangeRecord(broker_id=2, broker_epoch=20, fenced=True)
            await controller.add(m.MetadataRecord(broker_change=fence))
            assert await delete(2, LONG_MS) == (0, 2)
            assert await deleting == (0, 2)

    asyncio.run(scenario())


def test_a_former_leader_answers_with_the_new_leader_and_its_endpoint(start_broker: StartBroker) -> None:
    """The former leader's answer names the new leader and its endpoint (KIP-951)."""

    async def scenario() -> None:
        async with leading(start_broker) as (broker, controller, _):
            waiting = asyncio.ensure_future(
                broker.stub.produce(produce_request([("flights", 0, batch(1))], timeout_ms=LONG_MS))
            )
            await until(lambda: broker.parked_produces == 1)
            await controller.change_leader("flights", 0, 2)
            settled = await waiting
            refused = await broker.stub.produce(produce_request([("flights", 0, batch(1))]))
            message = await broker.stub.fetch(fetch_request([("flights", 0, 0)]))
            fetched, _ = decode_framed(message, b.FetchHeader)
            for answer in (settled, refused, fetched):
                [part], [node] = answer.partitions, answer.node_endpoints
                assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert (part.current_leader, part.current_leader_epoch) == (2, 1)
                assert (node.node_id, node.endpoint) == (2, ENDPOINT_2)

    asyncio.run(scenario())


def test_a_fetch_with_an_older_leader_epoch_is_fenced_and_gets_the_current_one(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker) as (broker, controller, _):
            await controller.change_leader("flights", 0, 1)
            await wait_leader_epoch(broker, 1)
            message = await broker.stub.fetch(fetch_request([("flights", 0, 0)], current_leader_epoch=0))
            fetched, _ = decode_framed(message, b.FetchHeader)
            [part], [node] = fetched.partitions, fetched.node_endpoints
            assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert (part.current_leader, part.current_leader_epoch, node.node_id) == (1, 1, 1)
            assert node.endpoint.port == broker.port

    asyncio.run(scenario())


def test_a_consumer_with_a_truncated_last_record_gets_the_diverging_epoch_and_offset(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with leading(start_broker, isr=(1,)) as (broker, controller, _):
            await broker.produce("flights", batch(2))
            await controller.change_leader("flights", 0, 1)
            await wait_leader_epoch(broker, 1)
            await broker.produce("flights", batch(1))
            request = [("flights", 0, 3)]
            answer, records = await broker.fetch("flights", 3, last_fetched_epoch=0, max_wait_ms=LONG_MS)
            assert (answer.error_code, answer.diverging.epoch, answer.diverging.end_offset) == (0, 0, 2)
            assert records == b""
            [message] = [each async for each in broker.stub.fetch_stream(fetch_request(request, last_fetched_epoch=0))]
            [(answer, _)] = split_fetch(message)
            assert answer.diverging.end_offset == 2
            answer, records = await broker.fetch("flights", 2, last_fetched_epoch=0)
            assert not answer.HasField("diverging")
            assert len(records) == len(batch(1))

    asyncio.run(scenario())


def test_a_leader_names_the_replica_in_the_rack_of_the_consumer(start_broker: StartBroker) -> None:
    """The consumer fetches from the replica in its own rack (KIP-392)."""

    async def scenario() -> None:
        settings = {"replica_selector_class": "RackAwareReplicaSelector", "broker_rack": "a"}
        async with leading(start_broker, rack="b", **settings) as (broker, _, follower):
            producing = asyncio.create_task(broker.produce("flights", batch(1), timeout_ms=LONG_MS))
            await follower.ask((0, 0, 0))
            await follower.answer()
            await follower.ask((0, 1, 0))
            await producing

            async def preferred(rack: str) -> int | None:
                answer, records = await broker.fetch("flights", rack_id=rack, max_wait_ms=LONG_MS)
                named = answer.HasField("preferred_read_replica")
                assert bool(records) is not named
                return answer.preferred_read_replica if named else None

            assert [await preferred(rack) for rack in ("a", "b", "c", "")] == [None, 2, None, None]

    asyncio.run(scenario())
