"""Producers and consumers, which record what they see."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Final

from klamm.consumer import AsyncConsumer, ConsumerRecord, CorruptRecordError
from klamm.errors import KlammError, OffsetOutOfRangeError
from klamm.model import TopicPartition
from klamm.producer import AsyncProducer
from klamm.producer.future import AsyncRecordFuture
from tests.chaos.klammchaos.partition_cluster import PARTITIONS, TOPIC
from tests.support.log_checker import Consumption, Outcome, Read, Send, Value
from tests.support.loop_time import loop_time_s

PAUSE_S: Final = 0.01
"""The pause of each producer between records. It leaves the brokers some CPU on two cores."""
PADDING: Final = b"." * 200
END_PROBABILITY: Final = 0.002
"""The probability that a mortal producer ends after a record."""
PRODUCERS_MAX: Final = 10
DELIVERY_TIMEOUT_MS: Final = 900_000
"""The delivery time-out is longer than any operation may take. If a record expired, later records might be stored twice
(KIP-360)."""
POLL_MS: Final = 200
REPAIR_S_MAX: Final = 60.0
"""The longest time for which damaged bytes on a disk may stay unrepaired."""
GO_BACK_PROBABILITY: Final = 0.001
"""The probability that a consumer seeks back after a poll."""
BACK_RECORDS_MAX: Final = 2_000
Settings = Mapping[str, str]
"""The settings with which a client logs in."""
_BEGINNING: Final = dict.fromkeys(range(PARTITIONS), 0)


def _partitions_of(topic: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in range(PARTITIONS))


def encode(value: Value) -> bytes:
    return b"%d:%d:" % value + PADDING


def decode(data: bytes) -> Value:
    producer, number, _ = data.split(b":", 2)
    return int(producer), int(number)


def reads_of(polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> Iterator[Read]:
    """Yields the records of a poll as reads."""
    for partition, records in polled.items():
        for record in records:
            assert record.value is not None, record
            yield Read(partition.partition, record.offset, decode(record.value))


class ProducerClient:
    """One idempotent producer that writes to all partitions until it is stopped. A mortal one ends now and then without
    waiting for anything, and another one replaces it."""

    def __init__(
        self,
        number: int,
        settings: Settings,
        rng: random.Random,
        *,
        mortal: bool = False,
        topic: str = TOPIC,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.sends: list[Send] = []
        self.acknowledged_s: dict[int, list[float]] = defaultdict(list)
        """The times of acknowledgements, by partition."""
        self._number = number
        self._settings = settings
        self._rng = rng
        self._topic = topic
        self._pause_s = pause_s
        self._end_probability = END_PROBABILITY if mortal else 0.0
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        for life in itertools.count():
            producer = AsyncProducer(self._settings, delivery_timeout_ms=DELIVERY_TIMEOUT_MS, acks="all")
            try:
                await self._live(producer, self._number + life * PRODUCERS_MAX, stop)
            finally:
                await producer.close(timeout=0)
            await asyncio.gather(*self._waiting)
            if stop.is_set():
                return

    async def _live(self, producer: AsyncProducer, name: int, stop: asyncio.Event) -> None:
        for count in itertools.count():
            if stop.is_set():
                await producer.flush()
                return
            await self._send(producer, (name, count))
            if self._rng.random() < self._end_probability:
                return
            await asyncio.sleep(self._rng.uniform(0, 2 * self._pause_s))

    async def _send(self, producer: AsyncProducer, value: Value) -> None:
        partition = self._rng.randrange(PARTITIONS)
        began_s = loop_time_s()
        try:
            future = await producer.send(self._topic, encode(value), partition=partition)
        except KlammError:
            # The producer has not even buffered the record.
            self.sends.append(Send(partition, value, Outcome.FAILED, None, began_s, loop_time_s()))
            return
        task = asyncio.create_task(self._note(future, partition, value, began_s))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _note(self, future: AsyncRecordFuture, partition: int, value: Value, began_s: float) -> None:
        try:
            written = await future
        except KlammError:
            self.sends.append(Send(partition, value, Outcome.UNKNOWN, None, began_s, loop_time_s()))
            return
        ended_s = loop_time_s()
        offset = None if written.offset < 0 else written.offset
        self.sends.append(Send(partition, value, Outcome.OK, offset, began_s, ended_s))
        self.acknowledged_s[partition].append(ended_s)


class ConsumerClient:
    """Reads all partitions from the beginning on while faults strike, and in the end all records that are left.

    With an `rng`, the client seeks back now and then, to an offset that it has already read."""

    def __init__(self, settings: Settings, rng: random.Random | None = None, *, topic: str = TOPIC) -> None:
        self.consumptions: list[Consumption] = []
        self.led_astray: list[str] = []
        """The errors of fetches at offsets that the log did not have. After each error, the client began again."""
        self._read_s = 0.0
        """The time of the last read that was not damaged."""
        self._settings = settings
        self._partitions = _partitions_of(topic)
        self._rng = rng

    async def run(self, written: asyncio.Event) -> None:
        self._read_s = loop_time_s()
        async with _consumer(self._settings, self._partitions) as consumer:
            self._begin(consumer, _BEGINNING)
            while not written.is_set():
                await self._poll(consumer)
                if self._rng is not None and self._rng.random() < GO_BACK_PROBABILITY:
                    self._begin(consumer, await self._earlier(consumer, self._rng))
            ends = await consumer.end_offsets(self._partitions)
            while not await _is_at(consumer, ends):
                await self._poll(consumer)

    def _begin(self, consumer: AsyncConsumer, begin: Mapping[int, int]) -> None:
        self.consumptions.append(Consumption(begin, []))
        for partition, offset in begin.items():
            consumer.seek(self._partitions[partition], offset)

    async def _poll(self, consumer: AsyncConsumer) -> None:
        try:
            self.consumptions[-1].polls.append(await _poll(consumer))
        except OffsetOutOfRangeError as error:
            self.led_astray.append(str(error))
            self._begin(consumer, _BEGINNING)
        except CorruptRecordError:
            # Bytes on a disk are damaged. Fetch them again until a broker has repaired them.
            if loop_time_s() - self._read_s > REPAIR_S_MAX:
                raise
            await asyncio.sleep(POLL_MS / 1000)
            return
        self._read_s = loop_time_s()

    async def _earlier(self, consumer: AsyncConsumer, rng: random.Random) -> dict[int, int]:
        positions = {one.partition: await consumer.position(one) for one in self._partitions}
        return {number: max(0, offset - rng.randrange(BACK_RECORDS_MAX)) for number, offset in positions.items()}


async def read_everything(settings: Settings, topic: str = TOPIC) -> dict[int, list[Read]]:
    """Returns every record of every partition, read by a new consumer."""
    found: dict[int, list[Read]] = {number: [] for number in range(PARTITIONS)}
    partitions = _partitions_of(topic)
    async with _consumer(settings, partitions) as consumer:
        for partition in partitions:
            consumer.seek(partition, 0)
        ends = await consumer.end_offsets(partitions)
        while not await _is_at(consumer, ends):
            for read in await _poll(consumer):
                found[read.partition].append(read)
    return found


@contextlib.asynccontextmanager
async def _consumer(settings: Settings, partitions: Sequence[TopicPartition]) -> AsyncIterator[AsyncConsumer]:
    """Yields a consumer of the partitions."""
    async with AsyncConsumer(settings, auto_offset_reset="none") as consumer:
        consumer.assign(partitions)
        yield consumer


async def _poll(consumer: AsyncConsumer) -> list[Read]:
    return list(reads_of(await consumer.poll(POLL_MS)))


async def _is_at(consumer: AsyncConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    return all([await consumer.position(partition) >= end for partition, end in ends.items()])
