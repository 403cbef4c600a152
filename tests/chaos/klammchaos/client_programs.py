"""Real Kafka clients, each a process that writes numbers and reads them back until it is killed.

    python -m tests.chaos.klammchaos.client_programs confluent-transactions HOST:PORT,... NAME

A client prints `acknowledged N` when a number is acknowledged, or copied by a transaction. It prints `read N` when it
reads one. The topics are NAME, and NAME-copy for copies. Each client handles every error as its documentation says. No
client is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PAUSE_S = 0.02
"""The pause between two numbers."""


def say(event: str, number: int) -> None:
    # One write call, because threads print at the same time.
    os.write(sys.stdout.fileno(), f"{event} {number}\n".encode())


def confluent(bootstrap: str, name: str) -> None:
    """Writes with librdkafka's idempotent producer, and reads with a consumer of a group."""
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    for number in itertools.count():

        def delivered(error: Any, record: Any) -> None:
            if error is None:
                say("acknowledged", int(record.value()))

        with contextlib.suppress(BufferError):
            producer.produce(name, str(number), on_delivery=delivered)
        producer.poll(0)
        for record in consumer.consume(100, PAUSE_S):
            if not record.error():
                say("read", int(record.value()))


def confluent_transactions(bootstrap: str, name: str) -> None:
    """Copies numbers exactly once, as `_Copier` describes."""
    from confluent_kafka import Producer

    feeder = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

    def feed() -> None:
        for number in itertools.count():
            with contextlib.suppress(BufferError):
                feeder.produce(name, str(number))
            feeder.poll(PAUSE_S)

    threading.Thread(target=feed, daemon=True).start()
    _Copier(bootstrap, name).run()


class _Copier:
    """Copies records in transactions, and commits the consumer's offsets in the same transactions."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._bootstrap = bootstrap
        self._name = name
        self._begin()

    def run(self) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                numbers = self._copy()
            except KafkaException as error:
                print(error, file=sys.stderr, flush=True)
                self._give_up(error.args[0])
                continue
            for number in numbers:
                say("acknowledged", number)
                say("read", number)

    def _begin(self) -> None:
        from confluent_kafka import Consumer, KafkaException, Producer

        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._name,
                # By default librdkafka 2.16 drops the brokers that it knew when all of them are gone. It may then wait
                # for ever for the one that coordinated the group (its issue 5511), with Apache Kafka as well.
                "metadata.recovery.strategy": "none",
            }
        )
        while True:
            with contextlib.suppress(KafkaException):
                self._producer.init_transactions(60)
                break
        self._consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([self._name])

    def _copy(self) -> list[int]:
        """Copies the records of one poll in one transaction, and returns their numbers."""
        producer, consumer = self._producer, self._consumer
        producer.begin_transaction()
        numbers = [int(record.value()) for record in consumer.consume(50, 0.2) if not record.error()]
        for number in numbers:
            producer.produce(f"{self._name}-copy", str(number))
        positions = [one for one in consumer.position(consumer.assignment()) if one.offset >= 0]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        while True:
            try:
                producer.commit_transaction()
                return numbers
            except Exception as error:
                if not error.args[0].retriable():
                    raise

    def _give_up(self, error: Any) -> None:
        """Aborts the transaction unless the error is fatal, and starts again. The transaction's records are then read
        again."""
        from confluent_kafka import KafkaException

        try:
            if not error.fatal():
                self._producer.abort_transaction()
        except KafkaException as second:
            error = second.args[0]
        self._consumer.close()
        self._begin()


def aiokafka(bootstrap: str, name: str) -> None:
    """Writes with an idempotent producer, and reads with a consumer of a group."""
    asyncio.run(_aiokafka(bootstrap, name))


async def _aiokafka(bootstrap: str, name: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        for number in itertools.count():
            await producer.send_and_wait(name, str(number).encode())
            say("acknowledged", number)
            await asyncio.sleep(PAUSE_S)

    async def read() -> None:
        consumer = AIOKafkaConsumer(name, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest")
        await consumer.start()
        async for record in consumer:
            say("read", int(record.value))

    await asyncio.gather(write(), read())


def kafka_python(bootstrap: str, name: str) -> None:
    """Writes with a producer and reads with a consumer of a group, each on a thread of its own."""
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError

    # By default a client that has lost its brokers may look for them again after five minutes only.
    config = {"bootstrap_servers": bootstrap.split(","), "metadata_max_age_ms": 5_000}

    def read() -> None:
        consumer = KafkaConsumer(name, group_id=name, auto_offset_reset="earliest", **config)
        while True:
            # The consumer raises an error for brokers that it cannot reach, and continues at the next iteration.
            with contextlib.suppress(KafkaError):
                for record in consumer:
                    say("read", int(record.value))

    threading.Thread(target=read, daemon=True).start()
    producer = KafkaProducer(acks="all", retries=2**31 - 1, **config)
    for number in itertools.count():
        try:
            producer.send(name, str(number).encode()).get(120)
        except KafkaError as error:
            print(repr(error), file=sys.stderr, flush=True)
        else:
            say("acknowledged", number)
        time.sleep(PAUSE_S)


PROGRAMS: dict[str, Callable[[str, str], None]] = {
    "confluent": confluent,
    "confluent-transactions": confluent_transactions,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}

if __name__ == "__main__":
    kind, bootstrap, name = sys.argv[1:]
    PROGRAMS[kind](bootstrap, name)
