"""Tests the asyncio Producer over real gRPC. The tests of the synchronous Producer cover the shared parts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, BufferExhaustedError, ErrorCode, IllegalStateError
from klamm.producer import AsyncProducer, ProducerInterceptor, ProducerRecord
from tests.support.scripted_broker import Answer, ScriptedCluster
from tests.support.waiting import patience

Body = Callable[[AsyncProducer, ScriptedCluster], Awaitable[None]]


def with_producer(body: Body, **settings: Any) -> None:
    async def main() -> None:
        cluster = ScriptedCluster()
        cluster.create_topic("t", 1)
        async with (
            cluster.serve(),
            AsyncProducer(
                bootstrap_servers=cluster.bootstrap, **{"linger_ms": 0, "retry_backoff_ms": 1, **settings}
            ) as producer,
        ):
            await body(producer, cluster)

    asyncio.run(asyncio.wait_for(main(), patience()))


def test_send_returns_when_buffered_and_its_future_when_acknowledged() -> None:
    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        futures = [await producer.send("t", b"%d" % number) for number in range(300)]

        assert [(await future).offset for future in futures] == list(range(300))
        assert cluster.values("t") == [b"%d" % number for number in range(300)]

    with_producer(body, batch_size=200)


def test_send_may_be_a_task_or_a_part_of_gather() -> None:
    """Most of these records fit into a batch that is open, so `send` has ended before it is awaited."""

    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        futures = [await producer.send("t", b"0")]
        futures.append(await asyncio.create_task(producer.send("t", b"1")))
        futures += await asyncio.gather(producer.send("t", b"2"), producer.send("t", b"3"))
        futures.append(await asyncio.wait_for(producer.send("t", b"4"), 60))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(producer.send("t", b"5"))
        futures.append(task.result())
        await producer.flush()

        assert [future.result().offset for future in futures] == list(range(6))
        assert cluster.values("t") == [b"%d" % number for number in range(6)]

    with_producer(body, linger_ms=60_000, delivery_timeout_ms=120_000)


def test_send_on_another_loop_is_refused_although_a_batch_is_open() -> None:
    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        await producer.send("t", b"0")

        async def elsewhere() -> None:
            with pytest.raises(IllegalStateError, match="expected calls on that loop"):
                await producer.send("t", b"1")

        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
        await producer.flush()
        assert cluster.values("t") == [b"0"]

    with_producer(body, linger_ms=60_000, delivery_timeout_ms=120_000)


def test_send_and_wait_gives_the_metadata() -> None:
    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        metadata = await producer.send_and_wait("t", b"v", b"k", partition=0, timestamp_ms=9)

        assert (metadata.partition, metadata.offset, metadata.timestamp_ms) == (0, 0, 9)

    with_producer(body)


def test_error_is_raised_by_the_future() -> None:
    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        cluster.produce_answers.append(Answer(error=ErrorCode.INVALID_RECORD))
        future = await producer.send("t", b"v")

        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_RECORD]):
            await future

    with_producer(body)


def test_flush_does_not_wait_for_linger() -> None:
    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        future = await producer.send("t", b"v")
        await producer.flush()
        assert future.done()

    with_producer(body, linger_ms=60_000)


def test_send_waits_for_memory_without_blocking_the_loop() -> None:
    release = threading.Event()

    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        cluster.produce_answers.append(Answer(wait_for=release))

        async def send_all() -> None:
            for number in range(200):
                await producer.send("t", b"%d" % number)

        sending = asyncio.create_task(send_all())
        while not producer.metrics()["waiting-threads"]:
            assert not sending.done()
            await asyncio.sleep(0.001)
        assert producer.metrics()["waiting-threads"] == 1
        release.set()
        await sending
        await producer.flush()
        assert cluster.values("t") == [b"%d" % number for number in range(200)]

    with_producer(body, buffer_memory=2_000, batch_size=500)


def test_send_fails_when_no_memory_is_free_within_max_block_ms() -> None:
    release = threading.Event()

    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        cluster.produce_answers.append(Answer(wait_for=release))
        await producer.send("t", b"x" * 400)
        await producer.send("t", b"x" * 400)
        with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms=300"):
            await producer.send("t", b"x" * 400)
        release.set()

    with_producer(body, buffer_memory=1_000, batch_size=500, max_block_ms=300)


def test_closed_producer_takes_no_records() -> None:
    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        future = await producer.send("t", b"v")
        await producer.close()
        assert (await future).offset == 0
        with pytest.raises(IllegalStateError, match="closed"):
            await producer.send("t", b"v")

    with_producer(body)


def test_partitions_for_returns_partitions_and_interceptors_change_records() -> None:
    class Upper(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=record.value.upper())

    async def body(producer: AsyncProducer, cluster: ScriptedCluster) -> None:
        assert await producer.partitions_for("t") == {0}
        await producer.send_and_wait("t", b"v")
        assert cluster.values("t") == [b"V"]

    with_producer(body, interceptor_classes=[Upper()])


def test_producer_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        AsyncProducer()
