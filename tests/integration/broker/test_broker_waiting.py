"""Tests that waiting requests are woken at once by the event they wait for, and otherwise by their timeout."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from klamm.errors import ErrorCode
from klamm_broker.grpc.fetch import STREAMS_PER_CONNECTION_MAX
from tests.support.broker_harness import LONG_MS, RunningBroker, StartBroker, batch, fetch_request
from tests.support.waiting import until


async def parked(broker: RunningBroker, count: int) -> None:
    """Waits until `count` fetches are parked."""
    await until(lambda: broker.parked_fetches == count)


def test_a_long_poll_is_woken_by_an_append(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2)
            await broker.wait_for_topic("flights", 2)
            wanted = [("flights", 0, 0), ("flights", 1, 0)]
            polling = asyncio.ensure_future(broker.fetch_many(wanted, max_wait_ms=LONG_MS))
            await parked(broker, 1)
            await broker.produce("flights", batch(2), partition=1)
            answers = await polling
            assert [answer.high_watermark for answer, _ in answers] == [0, 2]
            await parked(broker, 0)

    asyncio.run(scenario())


def test_a_long_poll_waits_for_min_bytes(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", 2)
            await broker.wait_for_topic("flights", 2)
            size = len(batch(1))
            await broker.produce("flights", batch(1))
            wanted = [("flights", 0, 0), ("flights", 1, 0)]
            polling = asyncio.ensure_future(broker.fetch_many(wanted, max_wait_ms=LONG_MS, min_bytes=3 * size))
            await parked(broker, 1)
            await broker.produce("flights", batch(1), partition=1)
            await parked(broker, 1)
            await broker.produce("flights", batch(1), partition=0)
            answers = await polling
            assert [answer.records_bytes for answer, _ in answers] == [2 * size, size]

    asyncio.run(scenario())


def test_a_long_poll_returns_available_records_after_max_wait(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            await broker.produce("flights", batch(1))
            start = time.monotonic()
            answer, records = await broker.fetch("flights", max_wait_ms=200, min_bytes=10_000)
            assert time.monotonic() - start >= 0.2
            assert (answer.error_code, len(records)) == (0, len(batch(1)))

    asyncio.run(scenario())


def test_a_poll_with_an_error_does_not_wait(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            wanted = [("flights", 0, 0), ("nowhere", 0, 0)]
            answers = await broker.fetch_many(wanted, max_wait_ms=LONG_MS)
            assert [answer.error_code for answer, _ in answers] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    asyncio.run(scenario())


def test_losing_the_leadership_ends_a_long_poll(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", replicas=(1, 2))
            await broker.wait_for_topic("flights")
            polling = asyncio.ensure_future(broker.fetch("flights", max_wait_ms=LONG_MS))
            await parked(broker, 1)
            await controller.change_leader("flights", 0, 2)
            answer, _ = await polling
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader == 2

    asyncio.run(scenario())


def test_a_cancelled_long_poll_leaves_the_purgatory(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            call = broker.stub.fetch(fetch_request([("flights", 0, 0)], max_wait_ms=LONG_MS))
            await parked(broker, 1)
            call.cancel()
            await parked(broker, 0)
            assert (await broker.produce("flights", batch(1))).base_offset == 0

    asyncio.run(scenario())


def test_a_full_purgatory_answers_at_once(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker(configs={"max.parked.requests": "1"}) as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            first = asyncio.ensure_future(broker.fetch("flights", max_wait_ms=LONG_MS))
            await parked(broker, 1)
            answer, records = await broker.fetch("flights", max_wait_ms=LONG_MS)
            assert (answer.error_code, records) == (0, b"")
            stream = broker.stub.fetch_stream(fetch_request([("flights", 0, 0)]))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stream.read()
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await broker.produce("flights", batch(1))
            assert (await first)[0].high_watermark == 1

    asyncio.run(scenario())


def test_one_connection_has_a_limited_number_of_fetch_streams(start_broker: StartBroker) -> None:
    """Otherwise it could use up `max.parked.requests`. A stream that ends makes room for another."""

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            wanted = fetch_request([("flights", 0, 0)])
            streams = [broker.stub.fetch_stream(wanted) for _ in range(STREAMS_PER_CONNECTION_MAX)]
            await parked(broker, STREAMS_PER_CONNECTION_MAX)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await broker.stub.fetch_stream(wanted).read()
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "the connection has 1000 fetch streams" in str(refused.value.details())
            async with broker.another_connection() as other:
                other_stream = other.fetch_stream(wanted)
                await parked(broker, STREAMS_PER_CONNECTION_MAX + 1)
                streams.pop().cancel()
                await parked(broker, STREAMS_PER_CONNECTION_MAX)
                streams.append(broker.stub.fetch_stream(wanted))
                await parked(broker, STREAMS_PER_CONNECTION_MAX + 1)
                other_stream.cancel()
            for stream in streams:
                stream.cancel()
            await parked(broker, 0)

    asyncio.run(scenario())


def test_acks_all_waits_for_every_replica_in_sync(start_broker: StartBroker) -> None:
    """The other replica never reports, so the produce times out.

    The record is written here, but neither committed nor readable.
    """

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", replicas=(1, 2), isr=(1, 2))
            await broker.wait_for_topic("flights")
            start = time.monotonic()
            produced = await broker.produce("flights", batch(1), timeout_ms=200)
            assert produced.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert time.monotonic() - start >= 0.2
            assert (await broker.produce("flights", batch(1), acks=1)).base_offset == 1
            answer, records = await broker.fetch("flights")
            assert (answer.error_code, answer.high_watermark, records) == (0, 0, b"")

    asyncio.run(scenario())


def test_losing_the_leadership_ends_a_waiting_produce(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", replicas=(1, 2), isr=(1, 2))
            await broker.wait_for_topic("flights")
            producing = asyncio.ensure_future(broker.produce("flights", batch(1), timeout_ms=LONG_MS))
            await until(lambda: broker.parked_produces == 1)
            await controller.change_leader("flights", 0, 2)
            assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())


def test_above_the_request_memory_limit_produces_are_refused_and_fetches_shrink(start_broker: StartBroker) -> None:
    configs = {"queued.max.request.bytes": "1000000", "socket.request.max.bytes": "1000000"}

    async def scenario() -> None:
        async with start_broker(configs=configs) as (broker, controller):
            await controller.create_topic("flights", 2, replicas=(1, 2), isr=(1, 2))
            await controller.create_topic("alone")
            await broker.wait_for_topic("alone")
            large = batch(1, value=bytes(600_000))
            waiting = asyncio.ensure_future(broker.produce("flights", large, timeout_ms=LONG_MS))
            await until(lambda: broker.parked_produces == 1)
            refused = await broker.produce("alone", large)
            assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert "queued.max.request.bytes" in refused.error_message
            for _ in range(5):
                assert (await broker.produce("alone", batch(1, value=bytes(100_000)))).error_code == 0
            answer, _ = await broker.fetch("alone", max_wait_ms=LONG_MS)
            assert 300_000 < answer.records_bytes < 400_000
            await controller.change_leader("flights", 0, 2)
            await waiting
            answer, _ = await broker.fetch("alone")
            assert answer.records_bytes > 500_000
            assert (await broker.produce("alone", large)).error_code == 0

    asyncio.run(scenario())


def test_a_produce_with_a_newer_leader_epoch_waits_for_the_metadata(start_broker: StartBroker) -> None:
    """The former leader has sent the client to this broker."""

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", leader=2, replicas=(1, 2))
            await broker.wait_for_topic("flights")
            producing = asyncio.ensure_future(
                broker.produce("flights", batch(2), acks=1, timeout_ms=LONG_MS, current_leader_epoch=1)
            )
            await until(lambda: broker.parked_produces == 1 or producing.done())
            assert not producing.done(), (await producing).error_message
            await controller.change_leader("flights", 0, 1)
            answer = await producing
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)

    asyncio.run(scenario())


def test_a_produce_whose_leader_epoch_never_arrives_in_the_metadata_is_refused(start_broker: StartBroker) -> None:
    """The epoch may belong to a deleted topic whose name a new topic has. The client must refresh its metadata."""

    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights")
            await broker.wait_for_topic("flights")
            answer = await broker.produce("flights", batch(2), timeout_ms=50, current_leader_epoch=7)
            assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            answer = await broker.produce("flights", batch(2), current_leader_epoch=0)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)

    asyncio.run(scenario())


def test_a_resigning_broker_answers_produces_that_wait_for_newer_metadata(start_broker: StartBroker) -> None:
    async def scenario() -> None:
        async with start_broker() as (broker, controller):
            await controller.create_topic("flights", leader=2, replicas=(1, 2))
            await broker.wait_for_topic("flights")
            producing = asyncio.ensure_future(
                broker.produce("flights", batch(), timeout_ms=LONG_MS, current_leader_epoch=1)
            )
            await until(lambda: broker.parked_produces == 1)
            broker.server._replicas.resign_all()
            await until(lambda: broker.parked_produces == 0)
            assert (await producing).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(scenario())
