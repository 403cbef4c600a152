"""Asynchronous clients when an application cancels all tasks, closes a client under another task, or changes loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Iterator

import pytest

from klamm import Admin, AsyncConsumer, AsyncProducer, Consumer, NewTopic, Producer, TopicPartition
from klamm.errors import ClosedError, IllegalStateError
from tests.support.klamm_process import running_cluster
from tests.support.waiting import patience


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running.bootstrap


@pytest.fixture
def topic(cluster: str, request: pytest.FixtureRequest) -> str:
    """Returns a topic with one record. The group has the same name."""
    name = request.node.name.replace("[", "-").replace("]", "")
    with Admin(bootstrap_servers=cluster) as admin, Producer(bootstrap_servers=cluster) as producer:
        admin.create_topics([NewTopic(name, partition_count=1)])
        producer.send(name, b"first").result(patience())
    return name


def consumer_of(cluster: str, topic: str) -> AsyncConsumer:
    consumer = AsyncConsumer(bootstrap_servers=cluster, group_id=topic, auto_offset_reset="earliest")
    consumer.subscribe([topic])
    return consumer


async def next_values(consumer: AsyncConsumer) -> list[bytes]:
    """Returns the values of the next poll that returns records."""
    async with asyncio.timeout(patience()):
        while not (polled := await consumer.poll(1_000)):
            pass
    return [record.value for records in polled.values() for record in records]


async def end_all_tasks() -> None:
    """Cancels all other tasks and waits for their end, as the end of `asyncio.run` does."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    async with asyncio.timeout(patience()):
        await asyncio.gather(*tasks, return_exceptions=True)


def test_clients_go_on_after_all_tasks_were_cancelled(cluster: str, topic: str) -> None:
    """Test frameworks cancel all tasks of a loop between tests."""

    async def run() -> None:
        producer = AsyncProducer(bootstrap_servers=cluster)
        consumer = consumer_of(cluster, topic)
        assert await next_values(consumer) == [b"first"]
        await producer.send_and_wait(topic, b"second")
        for _ in range(20):
            await end_all_tasks()
        async with asyncio.timeout(patience()):
            assert (await producer.send_and_wait(topic, b"third")).offset == 2
            values = await next_values(consumer)
            while len(values) < 2:
                values += await next_values(consumer)
            assert values == [b"second", b"third"]
            await producer.close()
            await consumer.close()

    asyncio.run(run())


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_a_cancelled_coroutine_closes_its_producer_when_the_loop_ends(cluster: str, topic: str, linger_ms: int) -> None:
    """The end of `asyncio.run` cancels the coroutine, and waits until its `async with` block has ended."""
    sent = 0
    enough = asyncio.Event()

    async def send_on() -> None:
        nonlocal sent
        async with AsyncProducer(bootstrap_servers=cluster, linger_ms=linger_ms) as producer:
            while True:
                await producer.send(topic, b"%d" % sent)
                sent += 1
                if sent == 100:
                    enough.set()
                await asyncio.sleep(0)

    async def read_on() -> None:
        async with consumer_of(cluster, topic) as consumer:
            async for _ in consumer:
                pass

    async def run() -> None:
        tasks = [asyncio.create_task(send_on()), asyncio.create_task(read_on())]
        async with asyncio.timeout(patience()):
            await enough.wait()
        assert not any(task.done() for task in tasks)
        await end_all_tasks()

    asyncio.run(run())
    partition = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=cluster) as admin:
        end = admin.list_offsets({partition: -1})[partition].offset
    # The cancelled call may have sent its record too.
    assert 1 + sent <= end <= 2 + sent


@pytest.mark.parametrize("polls", [True, False])
def test_close_ends_another_task_that_waits_for_records(cluster: str, topic: str, polls: bool) -> None:
    async def run() -> None:
        consumer = consumer_of(cluster, topic)
        got = asyncio.Event()

        async def poll() -> None:
            while True:
                await consumer.poll(patience() * 1000)
                got.set()

        async def iterate() -> None:
            async for _ in consumer:
                got.set()

        reader = asyncio.create_task(poll() if polls else iterate())
        async with asyncio.timeout(patience()):
            await got.wait()
            await asyncio.sleep(0)
            await consumer.close()
            with pytest.raises(ClosedError) if polls else contextlib.nullcontext():
                await reader
        with pytest.raises(ClosedError):
            aiter(consumer)

    asyncio.run(run())


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_client_refuses_another_event_loop(cluster: str, topic: str, is_closed: bool) -> None:
    clients: list[AsyncProducer | AsyncConsumer] = []

    async def make() -> None:
        clients.append(AsyncProducer(bootstrap_servers=cluster))
        await clients[0].send_and_wait(topic, b"second")
        clients.append(consumer_of(cluster, topic))

    async def make_and_close() -> None:
        await make()
        for client in clients:
            await client.close()

    async def use() -> None:
        producer, consumer = clients
        state = "is closed" if is_closed else "is another one"
        for call in (producer.send(topic, b"third"), producer.flush(), consumer.poll(1_000), consumer.close()):
            with pytest.raises(IllegalStateError, match=f"was created {state}"):
                await call

    async def make_and_use() -> None:
        await make()
        await asyncio.to_thread(asyncio.run, use())
        for client in clients:
            await client.close()

    if is_closed:
        asyncio.run(make_and_close())
        asyncio.run(use())
    else:
        asyncio.run(make_and_use())


async def poll_briefly(consumer: AsyncConsumer) -> None:
    assert not await consumer.poll(1)


async def cancel_the_next_record(consumer: AsyncConsumer) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await anext(consumer)


@pytest.mark.parametrize("wait", [poll_briefly, cancel_the_next_record])
def test_short_waits_of_an_idle_consumer_leave_nothing_behind(
    cluster: str, topic: str, wait: Callable[[AsyncConsumer], Awaitable[None]]
) -> None:
    rounds = 500

    async def run() -> None:
        async with consumer_of(cluster, topic) as consumer:
            assert await next_values(consumer) == [b"first"]
            for _ in range(rounds):
                await wait(consumer)
            before = object_count()
            for _ in range(rounds):
                await wait(consumer)
            assert object_count() < before + rounds / 2

    asyncio.run(run())


def test_short_waits_of_an_idle_consumer_of_threads_leave_nothing_behind(cluster: str, topic: str) -> None:
    rounds = 500
    with Consumer(bootstrap_servers=cluster, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(1_000):
            pass
        for _ in range(rounds):
            assert not consumer.poll(1)
        before = object_count()
        for _ in range(rounds):
            assert not consumer.poll(1)
        assert object_count() < before + rounds / 2


def object_count() -> int:
    """Returns the number of objects that are in use."""
    gc.collect()
    return len(gc.get_objects())
