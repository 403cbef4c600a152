"""Clients that an application drops without closing them: they close themselves, and nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psutil
import pytest

from klamm import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, NewTopic, Producer, TopicPartition
from klamm.client_task import tasks_of_clients
from klamm.threads.loop_thread import LoopThread
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.waiting import patience, until, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def topic(server: KlammProcess, request: pytest.FixtureRequest) -> str:
    """Returns a topic with three records. The group has the same name."""
    name = str(request.node.name.replace("[", "-").replace("]", ""))
    with Admin(bootstrap_servers=server.bootstrap) as admin, Producer(bootstrap_servers=server.bootstrap) as producer:
        admin.create_topics([NewTopic(name, partition_count=1)])
        for number in range(3):
            producer.send(name, b"%d" % number)
    return name


def forgetting(name: str) -> AbstractContextManager[object]:
    """Expects that the block drops a client without closing it. `name` matches the beginning of the warning."""
    return pytest.warns(ResourceWarning, match=name)


class Listener:
    """A rebalance listener that refers to its consumer."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    def on_partitions_assigned(self, _: object) -> None: ...

    def on_partitions_revoked(self, _: object) -> None: ...


def producer(bootstrap: str, topic: str) -> None:
    made = Producer(bootstrap_servers=bootstrap)
    made.send(topic, b"x").result(patience())


def consumer(bootstrap: str, topic: str) -> None:
    made = Consumer(bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
    made.subscribe([topic], listener=Listener(made))
    while not made.poll(1_000):
        pass


def admin(bootstrap: str, _: str) -> None:
    Admin(bootstrap_servers=bootstrap).list_topics()


async def async_producer(bootstrap: str, topic: str) -> None:
    made = AsyncProducer(bootstrap_servers=bootstrap)
    await made.send_and_wait(topic, b"x")


async def async_consumer(bootstrap: str, topic: str) -> None:
    made = AsyncConsumer(bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
    made.subscribe([topic], listener=Listener(made))
    while not await made.poll(1_000):
        pass


async def async_admin(bootstrap: str, _: str) -> None:
    await AsyncAdmin(bootstrap_servers=bootstrap).list_topics()


def connection_count(server: KlammProcess) -> int:
    """Returns the number of this process's connections to the cluster."""
    connections = psutil.Process().net_connections("tcp")
    return sum(bool(connection.raddr) and connection.raddr.port == server.port for connection in connections)


@pytest.mark.parametrize("use", [producer, consumer, admin])
def test_a_forgotten_client_closes_itself(server: KlammProcess, topic: str, use: Callable[[str, str], None]) -> None:
    loop_thread = LoopThread.shared()

    async def tasks() -> set[asyncio.Task[Any]]:
        return set(tasks_of_clients(loop_thread.loop))

    wait_until(lambda: not connection_count(server))
    tasks_of_others = loop_thread.run(tasks)
    with forgetting(f"{use.__name__.capitalize()} client.id=klamm.* was not closed"):
        use(server.bootstrap, topic)
        gc.collect()
    wait_until(lambda: loop_thread.run(tasks) <= tasks_of_others and not connection_count(server))


@pytest.mark.parametrize("use", [async_producer, async_consumer, async_admin])
def test_a_forgotten_asyncio_client_closes_itself(
    server: KlammProcess, topic: str, use: Callable[[str, str], Any]
) -> None:
    async def run() -> None:
        with forgetting(r"client\.id=klamm.* was not closed"):
            await use(server.bootstrap, topic)
            gc.collect()
        loop = asyncio.get_running_loop()
        await until(lambda: not tasks_of_clients(loop) and not connection_count(server))

    asyncio.run(run())


def test_a_forgotten_producer_sends_its_records(
    server: KlammProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with forgetting("was not closed"):
        made = Producer(bootstrap_servers=server.bootstrap, linger_ms=60_000)
        future = made.send(topic, b"x")
        del made
        gc.collect()
        assert future.result(patience()).offset == 3
    assert "1 record(s) were not acknowledged" in caplog.text


def test_a_forgotten_consumer_leaves_its_group_and_commits_only_processed_records(
    server: KlammProcess, topic: str
) -> None:
    with forgetting(f"group.id={topic} was not closed"):
        made = Consumer(bootstrap_servers=server.bootstrap, group_id=topic, auto_offset_reset="earliest")
        made.subscribe([topic])
        records = iter(made)
        assert [next(records).value, next(records).value] == [b"0", b"1"]
        del made, records
        gc.collect()
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        wait_until(lambda: not admin.describe_groups([topic])[topic].members)
        committed = admin.list_group_offsets(topic)
    assert committed[TopicPartition(topic, 0)].offset == 1
