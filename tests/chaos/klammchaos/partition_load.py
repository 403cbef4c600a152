"""Producers and consumers, each with what it saw."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from log_checker import Outcome, Read, Send, Value

from klamm.consumer import AsyncConsumer, ConsumerRecord
from klamm.errors import KlammError
from klamm.model import TopicPartition
from klamm.producer import AsyncProducer
from klamm.producer.future import AsyncRecordFuture
from klammchaos.partition_cluster import PARTITIONS, TOPIC

PAUSE_S: Final = 0.01
"""Of each producer between records: leaves the brokers some CPU on two cores."""
PADDING: Final = b"." * 200
DELIVERY_TIMEOUT_MS: Final = 60_000
POLL_MS: Final = 200
IDLE_S: Final = 0.5
"""A final reader that has reached the end may look once more."""


def encode(value: Value) -> bytes:
    return b"%d:%d:" % value + PADDING


def decode(data: bytes) -> Value:
    producer, number, _ = data.split(b":", 2)
    return int(producer), int(number)


def reads_of(polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> Iterator[Read]:
    """What a poll returned."""
    for partition, records in polled.items():
        for record in records:
            assert record.value is not None, record
            yield Read(partition.partition, record.offset, decode(record.value))


class ProducerClient:
    """One idempotent producer that writes to all partitions until it is stopped."""

    def __init__(self, number: int, bootstrap: str, rng: random.Random, **config: object) -> None:
        self.sends: list[Send] = []
        self.acknowledged_s: dict[int, list[float]] = defaultdict(list)
        """When, by partition."""
        self._number = number
        self._bootstrap = bootstrap
        self._rng = rng
        self._config = config
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        async with AsyncProducer(
            bootstrap_servers=self._bootstrap, delivery_timeout_ms=DELIVERY_TIMEOUT_MS, acks="all", **self._config
        ) as producer:
            count = 0
            while not stop.is_set():
                await self._send(producer, (self._number, count))
                count += 1
                await asyncio.sleep(self._rng.uniform(0, 2 * PAUSE_S))
            await asyncio.gather(*self._waiting)

    async def _send(self, producer: AsyncProducer, value: Value) -> None:
        partition = self._rng.randrange(PARTITIONS)
        began_s = time.monotonic()
        try:
            future = await producer.send(TOPIC, encode(value), partition=partition)
        except KlammError:
            # Not even buffered.
            self.sends.append(Send(partition, value, Outcome.FAILED, None, began_s, time.monotonic()))
            return
        task = asyncio.create_task(self._note(future, partition, value, began_s))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _note(self, future: AsyncRecordFuture, partition: int, value: Value, began_s: float) -> None:
        try:
            offset = (await future).offset
        except KlammError:
            self.sends.append(Send(partition, value, Outcome.UNKNOWN, None, began_s, time.monotonic()))
            return
        ended_s = time.monotonic()
        self.sends.append(Send(partition, value, Outcome.OK, offset, began_s, ended_s))
        self.acknowledged_s[partition].append(ended_s)


class ConsumerClient:
    """Reads all partitions from the beginning on, for as long as it runs."""

    def __init__(self, bootstrap: str) -> None:
        self.polled: list[Read] = []
        self._bootstrap = bootstrap

    async def run(self, stop: asyncio.Event) -> None:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        async with AsyncConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            while not stop.is_set():
                self.polled += reads_of(await consumer.poll(POLL_MS))


async def read_everything(bootstrap: str) -> dict[int, list[Read]]:
    """Every record of every partition, by a consumer that begins now."""
    found: dict[int, list[Read]] = {number: [] for number in range(PARTITIONS)}
    partitions = [TopicPartition(TOPIC, number) for number in found]
    async with AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(one) < ends[one] for one in partitions]):
            for read in reads_of(await consumer.poll(POLL_MS)):
                found[read.partition].append(read)
    return found
