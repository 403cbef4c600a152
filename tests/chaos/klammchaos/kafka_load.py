"""A producer and a consumer of librdkafka, which record what they see. They are the load of the Kafka listener."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.chaos.klammchaos.partition_cluster import PARTITIONS, TOPIC
from tests.chaos.klammchaos.partition_load import decode, encode
from tests.support.log_checker import Consumption, Outcome, Read, Send, Value
from tests.support.waiting import patience

NAME: Final = 1_000_000
"""The name of this load's producer. No other producer has it."""
POLL_S: Final = 0.05
UNACKNOWLEDGED_MAX: Final = 1_000
"""The number of unacknowledged records at which the producer pauses until some are acknowledged."""
READ_MAX: Final = 500
END_POLL_S: Final = 1.0
_BEGINNING: Final = dict.fromkeys(range(PARTITIONS), 0)


class KafkaProducerClient:
    """An idempotent producer without a delivery time-out. It writes to all partitions until it is stopped.

    librdkafka has a known bug, with Apache Kafka as well (its issue 4953). A batch that arrives after a refused one is
    out of order. librdkafka then raises its producer epoch and gives new sequence numbers to the unacknowledged records
    of all partitions. A broker cannot recognise one that it has written before. Their sends have `may_repeat`."""

    def __init__(self, settings: Mapping[str, str], rng: random.Random) -> None:
        self.sends: list[Send] = []
        self.acknowledged_s: dict[int, list[float]] = defaultdict(list)
        """The times of acknowledgements, by partition."""
        self._unacknowledged: set[Value] = set()
        self._renumbered: set[Value] = set()
        self._settings = settings
        self._rng = rng
        self._fatal: list[KafkaError] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Writes until `stop` is set. Raises AssertionError if librdkafka reports that it cannot continue."""
        producer = Producer(
            {
                **self._settings,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 5,
                "error_cb": self._on_error,
                "debug": "eos",
                "logger": _logger_of(self._on_log),
            }
        )
        for number in itertools.count():
            if stop.is_set():
                break
            if len(producer) < UNACKNOWLEDGED_MAX:
                self._send(producer, number)
            await asyncio.to_thread(producer.poll, self._rng.uniform(0, 2 * POLL_S))
            assert not self._fatal, f"librdkafka's producer cannot go on: {self._fatal}"
        while len(producer):
            await asyncio.to_thread(producer.flush, END_POLL_S)
            assert not self._fatal, f"librdkafka's producer cannot go on: {self._fatal}"

    def _send(self, producer: Producer, number: int) -> None:
        partition, value, began_s = self._rng.randrange(PARTITIONS), (NAME, number), time.monotonic()

        def delivered(error: KafkaError | None, record: Any) -> None:
            ended_s = time.monotonic()
            self._unacknowledged.discard(value)
            may_repeat = value in self._renumbered
            if error is not None:
                self.sends.append(Send(partition, value, Outcome.UNKNOWN, None, began_s, ended_s, may_repeat))
                return
            self.sends.append(Send(partition, value, Outcome.OK, record.offset(), began_s, ended_s, may_repeat))
            self.acknowledged_s[partition].append(ended_s)

        self._unacknowledged.add(value)
        producer.produce(TOPIC, encode(value), partition=partition, on_delivery=delivered)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal.append(error)

    def _on_log(self, message: str) -> None:
        """Notes that librdkafka is about to raise its epoch. Logs and acknowledgements arrive in their order."""
        if "epoch bump" in message:
            self._renumbered |= self._unacknowledged


class KafkaConsumerClient:
    """Reads all partitions from the beginning on, and in the end all records that are left."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.consumptions = [Consumption(_BEGINNING, [])]
        self.led_astray: list[str] = []
        self._settings = settings
        self._positions = dict(_BEGINNING)

    async def run(self, written: asyncio.Event) -> None:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        try:
            while not written.is_set():
                await asyncio.to_thread(self._poll, consumer)
            ends = await asyncio.to_thread(_ends, consumer)
            while any(self._positions[number] < end for number, end in ends.items()):
                await asyncio.to_thread(self._poll, consumer)
        finally:
            await asyncio.to_thread(consumer.close)

    def _poll(self, consumer: Consumer) -> None:
        reads: list[Read] = []
        for record in consumer.consume(READ_MAX, 2 * POLL_S):
            error = record.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    self.led_astray.append(str(error))
                continue
            number, offset = record.partition(), record.offset()
            assert number is not None
            assert offset is not None
            reads.append(Read(number, offset, decode(record.value() or b"")))
            self._positions[number] = offset + 1
        if reads:
            self.consumptions[-1].polls.append(reads)


def _logger_of(on_log: Callable[[str], None]) -> logging.Logger:
    """Returns a logger that passes the texts of its messages to `on_log` and writes nothing."""

    def take(record: logging.LogRecord) -> bool:
        on_log(record.getMessage())
        return False

    logger = logging.Logger(__name__, logging.DEBUG)
    logger.addFilter(take)
    return logger


def _ends(consumer: Consumer) -> dict[int, int]:
    return {
        number: consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=patience())[1]
        for number in range(PARTITIONS)
    }
