"""Clients go on when the leader of what they write and read is killed: all that was sent is read, once and in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kio.schema.errors import ErrorCode

from klamm_broker.kafka.api import ApiKey
from tests.clients import scenarios
from tests.support import java_programs
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
TIMEOUT_S = 60
BEFORE = 200
"""So many records are read before the leader is killed, and as many are sent after a new one is there."""


def behaviour(client: str) -> pytest.MarkDecorator:
    return pytest.mark.behaviour(client, "goes on when a leader is killed")


class Leader:
    """The leader of the one partition of a topic."""

    def __init__(self, cluster: Any, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(TIMEOUT_S)

    def kill(self) -> None:
        """Returns when another one leads."""
        killed = self._partition().leader
        self._cluster.kill_broker(killed)
        wait_until(lambda: self._partition().leader not in (-1, killed), pause_s=0.2)

    def wait_whole(self) -> None:
        """All replicas are in sync again: the next test meets three brokers."""
        wait_until(lambda: len(self._partition().isrs) == 3, pause_s=0.2)

    def _partition(self) -> Any:
        """Returns the partition as some broker knows it. The broker may not know a topic that was just created."""
        found: dict[int, Any] = {}

        def is_known() -> bool:
            found.update(self._admin.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic].partitions)
            return 0 in found

        wait_until(is_known, pause_s=0.2)
        return found[0]


ROUNDS_MAX = 50
"""The most rounds of FindCoordinator and DescribeGroups, with a pause of 100 ms between two of them as clients make."""


def rounds_to_describe(bootstrap: str, group: str) -> int:
    """Returns how often a client asks for the coordinator until a broker describes the group."""
    for number in range(ROUNDS_MAX):
        with contextlib.suppress(OSError):
            with KafkaWire(random.choice(bootstrap.split(","))) as wire:
                asked = {"key_type": scenarios.GROUP, "coordinator_keys": [group]}
                (named,) = wire.ask(ApiKey.FIND_COORDINATOR, 4, asked).coordinators
            if named.error_code == ErrorCode.none:
                with KafkaWire(f"{named.host}:{named.port}") as wire:
                    asked = {"groups": [group], "include_authorized_operations": False}
                    (described,) = wire.ask(ApiKey.DESCRIBE_GROUPS, 5, asked).groups
                if described.error_code == ErrorCode.none and described.group_state == "Stable":
                    return number + 1
        time.sleep(0.1)
    raise AssertionError(f"no broker described {group} as Stable in {ROUNDS_MAX} rounds")


def test_a_group_can_be_described_after_brokers_die_and_restart(cluster: Any, name: str) -> None:
    """Most keys move to another coordinator after the broker dies, and the brokers learn about it one after the
    other."""
    groups = [f"{name}-{number}" for number in range(6)]
    with KafkaWire(cluster.bootstrap) as wire:
        for group in groups:
            scenarios.find_coordinator(wire, group)
            join = {
                "group_id": group,
                "session_timeout": 300_000,
                "rebalance_timeout": 10_000,
                "member_id": "",
                "group_instance_id": "one",
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
                "reason": None,
            }
            joined = scenarios.settled(lambda join=join: wire.ask(ApiKey.JOIN_GROUP, 9, join))
            assert joined.error_code == ErrorCode.none
            sync = {
                "group_id": group,
                "generation_id": joined.generation_id,
                "member_id": joined.member_id,
                "group_instance_id": "one",
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [{"member_id": joined.member_id, "assignment": b""}],
            }
            assert wire.ask(ApiKey.SYNC_GROUP, 5, sync).error_code == ErrorCode.none
    # The broker dies, is fenced, restarts and is listed again within these rounds.
    cluster.kill_broker(2)
    deadline_s = time.monotonic() + 15
    while time.monotonic() < deadline_s:
        for group in groups:
            rounds_to_describe(cluster.bootstrap, group)
    with KafkaWire(cluster.bootstrap) as wire:
        brokers = wire.ask(ApiKey.METADATA, 12, {"topics": [], **scenarios.NO_FLAGS}).brokers
    assert {broker.node_id for broker in brokers} == {1, 2, 3}


@pytest.fixture
def leader(cluster: Any, name: str) -> Iterator[Leader]:
    one = Leader(cluster, name)
    yield one
    one.wait_whole()


@contextlib.contextmanager
def killed_meanwhile(leader: Leader) -> Iterator[threading.Event]:
    """Kills the leader in a thread. The event is set when another broker leads."""
    done = threading.Event()

    def kill() -> None:
        try:
            leader.kill()
        finally:
            done.set()

    thread = threading.Thread(target=kill)
    thread.start()
    yield done
    thread.join(TIMEOUT_S)
    assert done.is_set()


@behaviour("Java")
def test_java_loses_no_record_when_a_leader_is_killed(bootstrap: str, name: str, leader: Leader) -> None:
    with subprocess.Popen(
        java_programs.command("clients.Behaviours", "failover", bootstrap, name),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        try:
            assert client.stdout.readline() == "running\n"
            leader.kill()
            time.sleep(1)  # it writes and reads on
            client.stdin.write("\n")
            client.stdin.flush()
            assert client.stdout.readline() == "holds\n"
        finally:
            client.kill()


@behaviour("confluent-kafka")
def test_confluent_loses_and_doubles_no_record_when_a_leader_is_killed(
    bootstrap: str, name: str, leader: Leader
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    sent, seen, failures = 0, [], []

    def step() -> None:
        nonlocal sent
        producer.produce(name, str(sent), on_delivery=lambda error, _: error and failures.append(error))
        sent += 1
        producer.poll(0)
        read()

    def read() -> None:
        seen.extend(int(record.value()) for record in consumer.consume(100, 0.01) if not record.error())

    drive(step, lambda: len(seen), leader)
    assert producer.flush(TIMEOUT_S) == 0
    wait_until(lambda: len(seen) >= sent, between=read)
    consumer.close()
    assert failures == []
    assert seen == list(range(sent))


@behaviour("kafka-python")
def test_kafka_python_loses_and_doubles_no_record_when_a_leader_is_killed(
    bootstrap: str, name: str, leader: Leader
) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5)
    consumer = KafkaConsumer(
        name,
        bootstrap_servers=bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        metadata_max_age_ms=2_000,  # see test_kafka_python
    )
    futures, seen = [], []

    def step() -> None:
        futures.append(producer.send(name, b"%d" % len(futures)))
        read()

    def read() -> None:
        for records in consumer.poll(10).values():
            seen.extend(int(record.value) for record in records)

    drive(step, lambda: len(seen), leader)
    producer.flush(TIMEOUT_S)
    assert all(future.succeeded() for future in futures)
    wait_until(lambda: len(seen) >= len(futures), between=read)
    consumer.close()
    producer.close()
    assert seen == list(range(len(futures)))


@behaviour("aiokafka")
def test_aiokafka_loses_and_doubles_no_record_when_a_leader_is_killed(
    bootstrap: str, name: str, leader: Leader
) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        consumer = AIOKafkaConsumer(name, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest")
        await producer.start()
        await consumer.start()
        seen: list[int] = []
        is_over = asyncio.Event()

        progress = asyncio.Condition()

        async def read() -> None:
            async for record in consumer:
                async with progress:
                    seen.append(int(record.value))
                    progress.notify_all()

        async def seen_so_many(count: int) -> None:
            async with progress:
                await progress.wait_for(lambda: len(seen) >= count)

        async def write() -> int:
            futures = []
            while not is_over.is_set():
                futures.append(await producer.send(name, b"%d" % len(futures)))
                await asyncio.sleep(0.005)
            await asyncio.gather(*futures)
            return len(futures)

        reading, writing = asyncio.create_task(read()), asyncio.create_task(write())
        await seen_so_many(BEFORE)
        await asyncio.to_thread(leader.kill)
        await seen_so_many(len(seen) + BEFORE)
        is_over.set()
        sent = await writing
        await seen_so_many(sent)
        reading.cancel()
        # Its stop waits for ever if it has not found the group's next coordinator by then.
        await consumer.commit()
        await consumer.stop()
        await producer.stop()
        assert seen == list(range(sent))

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@behaviour("kcat")
def test_kcat_loses_and_doubles_no_record_when_a_leader_is_killed(bootstrap: str, name: str, leader: Leader) -> None:
    common = ["kcat", "-b", bootstrap, "-t", name, "-p", "0"]
    with subprocess.Popen(
        [*common, "-P", "-X", "enable.idempotence=true", "-X", "linger.ms=5"], stdin=subprocess.PIPE, text=True
    ) as producer:
        assert producer.stdin is not None
        sent = 0
        with killed_meanwhile(leader) as done:
            while not done.is_set():
                producer.stdin.write(f"{sent}\n")
                producer.stdin.flush()
                sent += 1
                time.sleep(0.005)
        producer.stdin.close()
        assert producer.wait(TIMEOUT_S) == 0
    read = subprocess.run(
        [*common, "-C", "-o", "beginning", "-e", "-q"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert [int(line) for line in read.stdout.split()] == list(range(sent))


def drive(step: Callable[[], None], seen_count: Callable[[], int], leader: Leader) -> None:
    """Repeats `step` until records flow, while the leader is killed, and for some time afterwards."""
    wait_until(lambda: seen_count() >= BEFORE, between=step)
    with killed_meanwhile(leader) as done:
        wait_until(done.is_set, between=step)
    for _ in range(BEFORE):
        step()
