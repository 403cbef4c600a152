"""aiokafka against the Kafka listener, with nothing changed but `bootstrap_servers`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    ProducerFenced,
    TopicAlreadyExistsError,
    for_code,
)

COUNT = 200
TIMEOUT_S = 60


def behaviour(text: str) -> pytest.MarkDecorator:
    return pytest.mark.behaviour("aiokafka", text)


@behaviour("produces without duplicates (idempotent)")
def test_a_group_reads_and_commits_the_records_of_an_idempotent_producer(bootstrap: str, name: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, 3, 3)])
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, compression_type="lz4")
        await producer.start()
        sent = await asyncio.gather(
            *[producer.send_and_wait(name, b"v%d" % number, key=b"k%d" % number) for number in range(COUNT)]
        )
        consumer = AIOKafkaConsumer(
            name, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        read = [await consumer.getone() for _ in range(COUNT)]
        assert {(one.partition, one.offset) for one in read} == {(one.partition, one.offset) for one in sent}
        assert {one.value for one in read} == {b"v%d" % number for number in range(COUNT)}
        await consumer.commit()
        committed = [await consumer.committed(partition) or 0 for partition in consumer.assignment()]
        assert sum(committed) == COUNT
        await consumer.stop()
        await producer.stop()
        await admin.close()

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.clients
@behaviour("produces and consumes with every codec")
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_with_every_codec(bootstrap: str, name: str, codec: str | None) -> None:
    async def scenario() -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec) as producer,
            AIOKafkaConsumer(name, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            await asyncio.gather(*[await producer.send(name, b"%d" % number) for number in range(COUNT)])
            read = {(await consumer.getone()).value for _ in range(COUNT)}
        assert read == {b"%d" % number for number in range(COUNT)}

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.clients
@behaviour("reads, processes and writes in transactions")
@behaviour("a newer producer fences the older one")
def test_aborted_records_are_not_read_and_a_newer_producer_fences_the_older_one(bootstrap: str, name: str) -> None:
    async def scenario() -> None:
        partition = TopicPartition(name, 0)
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, 1, 3)])
        await admin.close()
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await producer.start()
        for number in range(3):
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"%d" % number, partition=0)
            if number == 1:
                await producer.abort_transaction()
            else:
                await producer.send_offsets_to_transaction({partition: number + 1}, name)
                await producer.commit_transaction()
        async with AIOKafkaConsumer(
            name,
            bootstrap_servers=bootstrap,
            group_id=f"{name}-reader",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as reader:
            assert [(await reader.getone()).value for _ in range(2)] == [b"0", b"2"]
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=name) as member:
            member.assign([partition])
            assert await member.committed(partition) == 3
        newer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
        await newer.start()
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send_and_wait(name, b"late", partition=0)
        await producer.stop()
        await newer.stop()

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.clients
@behaviour("topics, partitions, configs")
@behaviour("brokers, quorum, features, users")
def test_an_admin_creates_alters_describes_and_deletes_a_topic(bootstrap: str, name: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, 1, 3, topic_configs={"retention.ms": "61234"})])
        await admin.create_partitions({name: NewPartitions(3)})
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        (described,) = await admin.describe_configs([resource])
        assert "61234" in str(described)
        # The older call, which replaces all that is set.
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"segment.ms": "71234"})])
        (described,) = await admin.describe_configs([resource])
        assert "71234" in str(described)
        assert "61234" not in str(described)
        assert {one["node_id"] for one in (await admin.describe_cluster())["brokers"]} == {1, 2, 3}
        await admin.delete_topics([name])
        await admin.close()

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.clients
@behaviour("offsets by time, at both ends, records deleted")
@behaviour("groups and their offsets administered")
def test_offsets_are_found_by_time_and_groups_are_described_with_their_offsets(bootstrap: str, name: str) -> None:
    async def scenario() -> None:
        partition = TopicPartition(name, 0)
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, 1, 3)])
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
            for number in range(1, 11):
                await producer.send_and_wait(name, b"x", partition=0, timestamp_ms=1_000 * number)
        async with AIOKafkaConsumer(
            name, bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False
        ) as consumer:
            found = (await consumer.offsets_for_times({partition: 5_500}))[partition]
            assert (found.offset, found.timestamp) == (5, 6_000)
            assert await consumer.end_offsets([partition]) == {partition: 10}
            await consumer.commit({partition: 7})
            (described,) = await admin.describe_consumer_groups([name])
            assert name in str(described)
        committed = await admin.list_consumer_group_offsets(name)
        assert committed[partition].offset == 7
        assert name in {group for group, *_ in await admin.list_consumer_groups()}
        await admin.close()

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


def member(bootstrap: str, group: str, **config: Any) -> AIOKafkaConsumer:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 200}
    return AIOKafkaConsumer(group, bootstrap_servers=bootstrap, group_id=group, **defaults, **config)


async def read(consumer: AIOKafkaConsumer, into: set[bytes], changed: asyncio.Condition) -> None:
    async for record in consumer:
        async with changed:
            into.add(record.value)
            changed.notify_all()


@pytest.mark.clients
@behaviour("groups rebalance while they consume")
def test_a_group_rebalances_while_it_consumes(bootstrap: str, name: str) -> None:
    """A second member comes and goes while records flow."""

    async def scenario() -> None:
        await create_topic(bootstrap, name)
        seen: set[bytes] = set()
        sent: list[bytes] = []
        changed = asyncio.Condition()
        async with (
            AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
            member(bootstrap, name) as first,
            asyncio.TaskGroup() as tasks,
        ):

            async def flow(until: Callable[[], bool]) -> None:
                while not until():
                    sent.append(b"%d" % len(sent))
                    await producer.send_and_wait(name, sent[-1], partition=len(sent) % 3)

            reading = tasks.create_task(read(first, seen, changed))
            await flow(lambda: len(first.assignment()) == 3)
            async with member(bootstrap, name) as second:
                also_reading = tasks.create_task(read(second, seen, changed))
                await flow(lambda: sorted([len(first.assignment()), len(second.assignment())]) == [1, 2])
                assert not first.assignment() & second.assignment()
                also_reading.cancel()
            await flow(lambda: len(first.assignment()) == 3)
            async with changed:
                await changed.wait_for(lambda: seen == set(sent))
            reading.cancel()

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.clients
@behaviour("static members keep their partitions")
def test_a_static_member_comes_back_to_its_partitions(bootstrap: str, name: str) -> None:
    async def scenario() -> None:
        await create_topic(bootstrap, name)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for partition in range(3):
                await producer.send_and_wait(name, b"%d" % partition, partition=partition)
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        for _ in range(2):
            async with member(bootstrap, name, group_instance_id="one") as consumer:
                assert {(await consumer.getone()).value for _ in range(3)} == {b"0", b"1", b"2"}
            # It is a member when it is gone: it will be back.
            (described,) = await admin.describe_consumer_groups([name])
            assert "Stable" in str(described)
        await admin.close()

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.clients
@behaviour("replicas, leaders, log dirs")
def test_replicas_are_described(bootstrap: str, name: str, wait_until_known: Callable[[str], None]) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, -1, -1, replica_assignments={0: [2, 1]})])
        wait_until_known(name)
        found = (await admin.describe_topics([name]))[0]["partitions"]
        assert [(one["leader"], one["replicas"], one["isr"]) for one in found] == [(2, [2, 1], [2, 1])]
        await admin.close()

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.clients
@behaviour("names errors as with Kafka")
def test_aiokafka_raises_the_errors_with_kafkas_names(bootstrap: str, name: str) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()

        async def refused(error: type[Exception], topic: NewTopic) -> None:
            with pytest.raises(error):
                raise for_code((await admin.create_topics([topic])).topic_errors[0][1])

        await admin.create_topics([NewTopic(name, 1, 3, topic_configs={"max.message.bytes": "1000"})])
        await refused(TopicAlreadyExistsError, NewTopic(name, 1, 1))
        await refused(InvalidTopicError, NewTopic("a b", 1, 1))
        await refused(InvalidReplicationFactorError, NewTopic(f"{name}-x", 1, 9))
        await refused(InvalidConfigurationError, NewTopic(f"{name}-y", 1, 1, topic_configs={"no.such.config": "1"}))
        await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(name, b"x" * 2_000)

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


async def create_topic(bootstrap: str, name: str) -> None:
    """Creates a topic of three partitions."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 3, 3)])
    await admin.close()
