"""aiokafka against the Kafka listener, with nothing changed but `bootstrap_servers`."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

COUNT = 200
TIMEOUT_S = 60


def test_an_idempotent_producer_and_a_group(bootstrap: str, name: str) -> None:
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
