"""librdkafka's consumers change from the classic to the consumer protocol one after the other, and back (KIP-848). They
lose no record and get no error, with Klamm and with Apache Kafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.scenarios import create_topic
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess
from tests.support.waiting import wait_until

PARTITION_COUNT = 4
EAGER = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500, "partition.assignment.strategy": "range"}
CONSUMER = {"group.protocol": "consumer"}


class Member:
    """A consumer that polls in a thread of its own until it is closed."""

    def __init__(self, bootstrap: str, group: str, config: dict[str, Any]) -> None:
        self.values: list[bytes] = []
        self.errors: list[str] = []
        self.owned: frozenset[int] = frozenset()
        """The numbers of the partitions that the consumer has."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                **config,
            }
        )
        self._consumer.subscribe([group], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned |= {partition.partition for partition in partitions}

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {partition.partition for partition in partitions}

    def _work(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error():
                self.errors.append(str(message.error()))
            elif message is not None:
                self.values.append(message.value())


class Roll:
    """A group with a topic of its name. Each change of its members is followed by records for all partitions."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.everybody: list[Member] = []
        self.team: list[Member] = []
        self._bootstrap, self._group = bootstrap, group
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._sent = 0

    def join(self, config: dict[str, Any]) -> None:
        member = Member(self._bootstrap, self._group, config)
        self.everybody.append(member)
        self.team.append(member)

    def replace_first(self, config: dict[str, Any]) -> None:
        self.team.pop(0).close()
        self.settle()
        self.join(config)
        self.settle()

    def settle(self) -> None:
        """Waits until the members share the partitions, and have read everything."""
        share = PARTITION_COUNT // len(self.team)
        wait_until(
            lambda: [len(member.owned) for member in self.team] == [share] * len(self.team),
            lambda: ([len(member.owned) for member in self.team], self.errors()),
        )
        for _ in range(5 * PARTITION_COUNT):
            self._producer.produce(self._group, b"%d" % self._sent, partition=self._sent % PARTITION_COUNT)
            self._sent += 1
        self._producer.flush()
        wait_until(
            lambda: len({value for member in self.everybody for value in member.values}) == self._sent,
            lambda: (self._sent, [len(member.values) for member in self.everybody], self.errors()),
        )

    def errors(self) -> list[str]:
        return [error for member in self.everybody for error in member.errors]


@contextmanager
def rolling(bootstrap: str, group: str) -> Iterator[Roll]:
    with KafkaWire(bootstrap) as wire:
        create_topic(wire, group, PARTITION_COUNT)
    roll = Roll(bootstrap, group)
    try:
        yield roll
    finally:
        for member in roll.team:
            member.close()


def change_and_change_back(bootstrap: str, group: str) -> None:
    with rolling(bootstrap, group) as roll:
        roll.join(EAGER)
        roll.join(EAGER)
        roll.settle()
        for config in (CONSUMER, CONSUMER, EAGER, EAGER):
            roll.replace_first(config)
        assert roll.errors() == []


def test_with_klamm(klamm_node: KlammProcess, name: str) -> None:
    change_and_change_back(klamm_node.kafka_bootstrap, name)


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_with_apache_kafka(apache_kafka: ApacheKafka, name: str) -> None:
    change_and_change_back(apache_kafka.bootstrap, name)
