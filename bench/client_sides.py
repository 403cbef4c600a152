"""One measurement of one client, in a process of its own. `client_ratio.py` starts it.

Run: python -m bench.client_sides CELL CLIENT SIZE_BYTES COUNT TOPIC ADDRESS

CELL is a function of this module, CLIENT a branch in it. Prints {"rate": records/s, "us": CPU microseconds per record}
of this process as JSON. Every client uses its defaults, with idempotence where a producer has it. A run in which a
record is missing fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

PARTITIONS = 4
GROUP = "bench"
QUEUE = {"enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
READS = {"group.id": GROUP, "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}


class Stopwatch:
    """The wall time and the CPU time from its creation on."""

    def __init__(self) -> None:
        self._started_s = time.perf_counter()
        self._cpu_s = time.process_time()

    def figures(self, count: int) -> dict[str, float]:
        cpu_s = time.process_time() - self._cpu_s
        return {"rate": count / (time.perf_counter() - self._started_s), "us": cpu_s * 1e6 / count}


def produce(client: str, size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """`send` in a loop, until all records are acknowledged."""
    value = os.urandom(size_bytes)
    if client == "klamm":
        return _produce_klamm(value, count, topic, address)
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, **QUEUE})
    producer.produce(topic, value)
    producer.flush()
    watch = Stopwatch()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1_000 == 0:
            producer.poll(0)
    assert not producer.flush(), "not every record was acknowledged"
    return watch.figures(count)


def _produce_klamm(value: bytes, count: int, topic: str, address: str) -> dict[str, float]:
    from klamm import Producer

    with Producer(bootstrap_servers=address) as producer:
        producer.send(topic, value).result()
        watch = Stopwatch()
        send = producer.send
        for _ in range(count):
            send(topic, value)
        producer.flush()
        figures = watch.figures(count)
        assert producer.metrics()["record-send-total"] == count + 1
        return figures


def produce_many(client: str, size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """`send_many` with 10,000 values at a time. confluent-kafka has no such call, so it sends one by one."""
    if client != "klamm":
        return produce(client, size_bytes, count, topic, address)
    from klamm import Producer

    values = [os.urandom(size_bytes)] * 10_000
    count = max(1, count // len(values)) * len(values)
    with Producer(bootstrap_servers=address) as producer:
        producer.send(topic, values[0]).result()
        watch = Stopwatch()
        for _ in range(count // len(values)):
            producer.send_many(topic, values)
        producer.flush()
        figures = watch.figures(count)
        assert producer.metrics()["record-send-total"] == count + 1
        return figures


def consume(client: str, _size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """Polls, and reads the value of each record in a loop."""
    seen = 0
    if client == "klamm":
        reader = _klamm_reader(topic, address)
        watch = Stopwatch()
        while seen < count:
            for records in reader.poll(1_000).values():
                for record in records:
                    seen += 1
                    _ = record.value
        return watch.figures(seen)
    peer = _confluent_reader(topic, address)
    watch = Stopwatch()
    while seen < count:
        for message in peer.consume(1_000, 1.0):
            seen += message.error() is None
            _ = message.value()
    return watch.figures(seen)


def iterate(client: str, _size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """One record at a time: `for record in consumer`, or confluent-kafka's `poll`."""
    seen = 0
    if client == "klamm":
        reader = _klamm_reader(topic, address)
        watch = Stopwatch()
        for record in reader:
            seen += 1
            _ = record.value
            if seen >= count:
                break
        return watch.figures(seen)
    peer = _confluent_reader(topic, address)
    watch = Stopwatch()
    while seen < count:
        message = peer.poll(1.0)
        if message is not None:
            seen += message.error() is None
            _ = message.value()
    return watch.figures(seen)


def arrow_send(client: str, size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """Sends a table with a column of values. confluent-kafka sends the values one by one."""
    import pyarrow as pa

    data = os.urandom(size_bytes * count)
    table = pa.table({"value": [data[at : at + size_bytes] for at in range(0, len(data), size_bytes)]})
    if client == "klamm":
        from klamm import Producer

        with Producer(bootstrap_servers=address) as producer:
            producer.send_arrow(topic, table.slice(0, 1)).result()
            watch = Stopwatch()
            sent = producer.send_arrow(topic, table).result()
            assert sent == count
            return watch.figures(count)
    from confluent_kafka import Producer as Peer

    peer = Peer({"bootstrap.servers": address, **QUEUE})
    peer.produce(topic, b"")
    peer.flush()
    watch = Stopwatch()
    for number, value in enumerate(table.column("value").to_pylist()):
        while True:
            try:
                peer.produce(topic, value)
                break
            except BufferError:
                peer.poll(0.01)
        if number % 1_000 == 0:
            peer.poll(0)
    assert not peer.flush(), "not every record was acknowledged"
    return watch.figures(count)


def arrow_read(client: str, _size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """Reads a topic as a table of offsets, timestamps, keys and values, twice, and measures the second time.
    confluent-kafka gives `consume` and `pa.array`."""
    read = _read_table_klamm if client == "klamm" else _read_table_confluent
    read(count, topic, address)
    watch = Stopwatch()
    rows = read(count, topic, address)
    assert rows >= count
    return watch.figures(rows)


def _read_table_klamm(_count: int, topic: str, address: str) -> int:
    import klamm

    columns = ["offset", "timestamp", "key", "value"]
    return klamm.read_arrow(topic, bootstrap_servers=address, columns=columns).read_all().num_rows


def _read_table_confluent(count: int, topic: str, address: str) -> int:
    import pyarrow as pa

    peer, batches, seen = _confluent_reader(topic, address), [], 0
    while seen < count:
        found = [message for message in peer.consume(10_000, 1.0) if message.error() is None]
        seen += len(found)
        columns = {
            "offset": pa.array([message.offset() for message in found], pa.int64()),
            "timestamp": pa.array([message.timestamp()[1] for message in found], pa.int64()),
            "key": pa.array([message.key() for message in found], pa.binary()),
            "value": pa.array([message.value() for message in found], pa.binary()),
        }
        batches.append(pa.record_batch(columns))
    peer.close()
    return pa.Table.from_batches(batches).num_rows


def _klamm_reader(topic: str, address: str) -> Any:
    from klamm import Consumer, TopicPartition

    reader = Consumer(bootstrap_servers=address, auto_offset_reset="earliest")
    reader.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return reader


def _confluent_reader(topic: str, address: str) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": address, **READS})
    reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    return reader


def async_produce(client: str, size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """`await send` in a loop, until all records are acknowledged."""
    makers = {"klamm": _async_klamm, "aiokafka": _async_aiokafka, "AIOProducer": _async_confluent}
    return asyncio.run(makers[client](os.urandom(size_bytes), count, topic, address))


async def _async_klamm(value: bytes, count: int, topic: str, address: str) -> dict[str, float]:
    from klamm import AsyncProducer

    async with AsyncProducer(bootstrap_servers=address) as producer:
        await (await producer.send(topic, value))
        watch = Stopwatch()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        figures = watch.figures(count)
        assert producer.metrics()["record-send-total"] == count + 1
        return figures


def async_produce_many(client: str, size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """`await send_many` with 10,000 values at a time. aiokafka has no such call, so it sends one by one."""
    if client != "klamm":
        return async_produce(client, size_bytes, count, topic, address)
    return asyncio.run(_async_klamm_many(os.urandom(size_bytes), count, topic, address))


async def _async_klamm_many(value: bytes, count: int, topic: str, address: str) -> dict[str, float]:
    from klamm import AsyncProducer

    values = [value] * 10_000
    count = max(1, count // len(values)) * len(values)
    async with AsyncProducer(bootstrap_servers=address) as producer:
        await (await producer.send(topic, value))
        watch = Stopwatch()
        for _ in range(count // len(values)):
            await producer.send_many(topic, values)
        await producer.flush()
        figures = watch.figures(count)
        assert producer.metrics()["record-send-total"] == count + 1
        return figures


async def _async_aiokafka(value: bytes, count: int, topic: str, address: str) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, value)
        watch = Stopwatch()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        return watch.figures(count)


async def _async_confluent(value: bytes, count: int, topic: str, address: str) -> dict[str, float]:
    from confluent_kafka.aio import AIOProducer

    producer = AIOProducer({"bootstrap.servers": address, **QUEUE}, batch_size=10_000, max_workers=2)
    await producer.produce(topic, value)
    await producer.flush()
    watch = Stopwatch()
    for _ in range(count):
        await producer.produce(topic, value)
    await producer.flush()
    figures = watch.figures(count)
    await producer.close()
    return figures


def async_consume(client: str, _size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """Polls on an event loop, and reads the value of each record in a loop."""
    makers = {"klamm": _async_poll_klamm, "aiokafka": _async_poll_aiokafka, "AIOConsumer": _async_poll_confluent}
    return asyncio.run(makers[client](count, topic, address))


async def _async_poll_klamm(count: int, topic: str, address: str) -> dict[str, float]:
    from klamm import AsyncConsumer, TopicPartition

    async with AsyncConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        seen, watch = 0, Stopwatch()
        while seen < count:
            for records in (await consumer.poll(1_000)).values():
                for record in records:
                    seen += 1
                    _ = record.value
        return watch.figures(seen)


async def _async_poll_aiokafka(count: int, topic: str, address: str) -> dict[str, float]:
    async with _aiokafka_reader(address) as consumer:
        await _assign_aiokafka(consumer, topic)
        seen, watch = 0, Stopwatch()
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1_000, max_records=500)).values():
                for record in records:
                    seen += 1
                    _ = record.value
        return watch.figures(seen)


async def _async_poll_confluent(count: int, topic: str, address: str) -> dict[str, float]:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition
    from confluent_kafka.aio import AIOConsumer

    consumer = AIOConsumer({"bootstrap.servers": address, **READS})
    await consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    seen, watch = 0, Stopwatch()
    while seen < count:
        for message in await consumer.consume(1_000, 1.0):
            seen += message.error() is None
            _ = message.value()
    figures = watch.figures(seen)
    await consumer.close()
    return figures


def async_iterate(client: str, _size_bytes: int, count: int, topic: str, address: str) -> dict[str, float]:
    """`async for record in consumer`."""
    makers = {"klamm": _async_for_klamm, "aiokafka": _async_for_aiokafka}
    return asyncio.run(makers[client](count, topic, address))


async def _async_for_klamm(count: int, topic: str, address: str) -> dict[str, float]:
    from klamm import AsyncConsumer, TopicPartition

    async with AsyncConsumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        return await _count(consumer, count)


async def _async_for_aiokafka(count: int, topic: str, address: str) -> dict[str, float]:
    async with _aiokafka_reader(address) as consumer:
        await _assign_aiokafka(consumer, topic)
        return await _count(consumer, count)


async def _count(consumer: Any, count: int) -> dict[str, float]:
    seen, watch = 0, Stopwatch()
    async for record in consumer:
        seen += 1
        _ = record.value
        if seen >= count:
            break
    return watch.figures(seen)


def _aiokafka_reader(address: str) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(bootstrap_servers=address, group_id=None, auto_offset_reset="earliest")


async def _assign_aiokafka(consumer: Any, topic: str) -> None:
    from aiokafka import TopicPartition

    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    await consumer.seek_to_beginning()


CELLS = {
    each.__name__.replace("_", "-"): each
    for each in (
        *(produce, produce_many, consume, iterate, arrow_send, arrow_read),
        *(async_produce, async_produce_many, async_consume, async_iterate),
    )
}


def main() -> None:
    cell, client, size_bytes, count, topic, address = sys.argv[1:]
    print(json.dumps(CELLS[cell](client, int(size_bytes), int(count), topic, address)), flush=True)
    os._exit(0)  # Otherwise the client fetches on, and slows down the next run.


if __name__ == "__main__":
    main()
