"""Groups with auto.offset.reset=latest whose topic grows while they are down: each client reads the new partitions from
their beginning. With Apache Kafka it skips what is in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.clients.conftest import Cluster
from tests.clients.test_tools import tool
from tests.support.apache_kafka import ApacheKafka
from tests.support.waiting import patience, wait_until

WRITTEN, DELETED = 30, 4
"""The records of each new partition, and how many of them are deleted in the first one."""
WANTED = 2 * WRITTEN - DELETED
JAVA_IDLE_MS = 10_000
"""Java's console consumer ends when no record came for this long."""

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


def grow(bootstrap: str, topic: str) -> None:
    """Makes a group of the topic's name commit, and then lets the topic grow from one partition to three."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    made.result()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"old", partition=0)
    producer.flush()
    reader = librdkafka(bootstrap, topic)
    wait_until(lambda: commits(reader, confluent_kafka.TopicPartition(topic, 0, 1)))
    reader.close()
    (grown,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
    grown.result()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(WRITTEN):
        for partition in (1, 2):
            producer.produce(topic, b"record %d" % number, partition=partition)
    assert producer.flush(patience()) == 0
    (deleted,) = admin.delete_records([confluent_kafka.TopicPartition(topic, 1, DELETED)]).values()
    deleted.result()


def commits(reader: confluent_kafka.Consumer, offset: confluent_kafka.TopicPartition) -> bool:
    """Commits the offset. Returns False while the group has no coordinator."""
    try:
        reader.commit(offsets=[offset], asynchronous=False)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError.NOT_COORDINATOR:
            raise
        return False
    return True


def librdkafka(bootstrap: str, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def read_with_librdkafka(bootstrap: str, topic: str) -> int:
    """Returns the number of records up to the ends of all partitions."""
    consumer, count, ends = librdkafka(bootstrap, topic), 0, set[int]()
    consumer.subscribe([topic])
    while len(ends) < 3:
        message = consumer.poll(patience())
        assert message is not None, "neither a record nor the end of a partition came"
        if message.error() is None:
            count += 1
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ends.add(message.partition())
        else:
            raise AssertionError(message.error())
    consumer.close()
    return count


def read_with_aiokafka(bootstrap: str, topic: str) -> int:
    """Returns the number of records until there are as many as wanted."""

    async def read() -> int:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="latest")
        await consumer.start()
        count = 0
        try:
            async with asyncio.timeout(patience()):
                while count < WANTED:
                    count += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
        finally:
            await consumer.stop()
        return count

    return asyncio.run(read())


def read_with_java(bootstrap: str, topic: str, protocol: str) -> int:
    """Returns the number of records that the console consumer prints."""
    printed = tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", topic, "--timeout-ms", str(JAVA_IDLE_MS)),
        *("--consumer-property", "auto.offset.reset=latest", "--consumer-property", f"group.protocol={protocol}"),
    )
    return len([line for line in printed.splitlines() if line.startswith("record ")])


CLIENTS = {
    "librdkafka": read_with_librdkafka,
    "aiokafka": read_with_aiokafka,
    "java-classic": lambda bootstrap, topic: read_with_java(bootstrap, topic, "classic"),
    "java-consumer": lambda bootstrap, topic: read_with_java(bootstrap, topic, "consumer"),
}


@pytest.mark.parametrize("read", CLIENTS.values(), ids=CLIENTS)
def test_each_client_reads_all_records_of_new_partitions(
    cluster: Cluster, name: str, read: Callable[[str, str], int]
) -> None:
    grow(cluster.bootstrap, name)
    assert read(cluster.bootstrap, name) == WANTED


@pytest.mark.parametrize("client", ["librdkafka", "java-classic", "java-consumer"])
def test_apache_kafka_skips_them(apache_kafka: ApacheKafka, name: str, client: str) -> None:
    grow(apache_kafka.bootstrap, name)
    assert CLIENTS[client](apache_kafka.bootstrap, name) == 0
