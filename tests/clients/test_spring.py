"""Listeners of spring-kafka against the Kafka listener: transactions, retries, dead letters and topics it creates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import java_programs
from tests.support.foreign_program import ForeignProgram
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

pytestmark = [pytest.mark.clients]
VALUES = [f"value-{number}" for number in range(600)]
BAD_VALUES = [f"bad-{number}" for number in range(4)]
UNCOMMITTED = "read_uncommitted"
ATTEMPTS = 3
"""The number of times that the listener gets a record that fails."""


def behaviour(text: str) -> pytest.MarkDecorator:
    return pytest.mark.behaviour("spring-kafka", text)


class Application(ForeignProgram):
    """Runs of `Shouter`, one after the other, in the same topics."""

    def __init__(self, bootstrap: str, name: str, log: Path) -> None:
        super().__init__(log)
        self.source, self.target, self.dead_letters = f"{name}-in", f"{name}-out", f"{name}-in-dlt"
        self._bootstrap = bootstrap
        self._name = name
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._ends_reader = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "isolation.level": UNCOMMITTED})

    def run(self, mode: str) -> None:
        """Starts the application and waits until its topics are there."""
        self.start(java_programs.spring_command("clients.Shouter", self._bootstrap, self._name, mode))
        wait_until(self._has_topics, self.tail, pause_s=0.2)

    def close(self) -> None:
        super().close()
        self._ends_reader.close()

    def send(self, values: list[str]) -> None:
        for value in values:
            self._producer.produce(self.source, value, key=value)
            self._producer.poll(0)
        assert self._producer.flush(patience()) == 0

    def wait_for_output(self, count: int) -> None:
        """Waits until the target holds at least `count` committed records."""
        wait_until(lambda: len(self.read(self.target)) >= count, self.tail)

    def read(self, topic: str) -> list[Message]:
        """Returns the committed records up to the high watermarks that the topic has now."""
        ends = self._ends(topic)
        config = {
            "bootstrap.servers": self._bootstrap,
            "group.id": f"{self._name}-reader",
            "enable.partition.eof": True,
        }
        reader = Consumer({**config, "isolation.level": "read_committed"})
        reader.assign([TopicPartition(topic, partition, 0) for partition in ends])
        records: list[Message] = []
        positions = dict.fromkeys(ends, 0)

        def poll() -> None:
            for record in reader.consume(1_000, 0.2):
                error, partition, offset = record.error(), record.partition(), record.offset()
                assert partition is not None
                assert offset is not None
                if error is None:
                    records.append(record)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    positions[partition] = offset

        def is_at_end() -> bool:
            return all(positions[partition] >= end for partition, end in ends.items())

        try:
            wait_until(is_at_end, lambda: (positions, ends, self.tail()), between=poll)
        finally:
            reader.close()
        return records

    def wait_until_all_is_committed(self) -> None:
        """Waits until the group has committed the end of each partition of the source."""
        ends = self._ends(self.source)
        wait_until(lambda: self._committed() == ends, lambda: (self._committed(), ends, self.tail()))

    def values(self, topic: str) -> list[str]:
        return sorted(_value(record) for record in self.read(topic))

    def _has_topics(self) -> bool:
        self.check()
        known = self._admin.list_topics(timeout=patience()).topics
        return {self.source, self.target, self.dead_letters} <= set(known)

    def _ends(self, topic: str) -> dict[int, int]:
        """Returns the high watermarks by partition."""
        partitions = self._admin.list_topics(topic, timeout=patience()).topics[topic].partitions
        return {
            partition: self._ends_reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=patience())[1]
            for partition in partitions
        }

    def _committed(self) -> dict[int, int]:
        """Returns the group's committed offsets by partition."""
        partitions = self._admin.list_topics(self.source, timeout=patience()).topics[self.source].partitions
        asked = [TopicPartition(self.source, partition) for partition in partitions]
        return {each.partition: each.offset for each in self._ends_reader.committed(asked, timeout=patience())}


def _value(record: Message) -> str:
    value = record.value()
    assert value is not None
    return value.decode()


def _headers(record: Message) -> dict[str, bytes]:
    return {key: value for key, value in record.headers() or [] if isinstance(value, bytes)}


@pytest.fixture
def application(bootstrap: str, name: str, tmp_path: Path) -> Iterator[Application]:
    one = Application(bootstrap, name, tmp_path / "spring.log")
    yield one
    one.close()


@behaviour("listener with transactions, records that fail among others, killed in the middle")
def test_each_record_has_one_output_or_one_dead_letter_over_a_crash(application: Application) -> None:
    half = len(VALUES) // 2
    application.run("transactions")
    application.send([*VALUES[: half // 2], *BAD_VALUES[:2], *VALUES[half // 2 : half]])
    application.wait_for_output(half // 3)
    application.kill()
    application.send([*BAD_VALUES[2:], *VALUES[half:]])
    application.run("transactions")
    application.wait_until_all_is_committed()
    with verdict():
        assert application.values(application.target) == sorted(value.upper() for value in VALUES)
        assert application.values(application.dead_letters) == BAD_VALUES


@behaviour("a record that fails goes to the dead-letter topic after its retries")
def test_a_record_that_fails_goes_to_the_dead_letter_topic(application: Application) -> None:
    application.run("retries")
    application.send([*VALUES[:50], *BAD_VALUES, *VALUES[50:100]])
    outputs = sorted([*(value.upper() for value in VALUES[:100]), *(value.upper() for value in ATTEMPTS * BAD_VALUES)])
    application.wait_until_all_is_committed()
    assert sorted(line for line in application.lines() if line.startswith("failed ")) == sorted(
        f"failed {value}" for value in ATTEMPTS * BAD_VALUES
    )
    with verdict():
        assert application.values(application.target) == outputs
        assert application.values(application.dead_letters) == BAD_VALUES
    for letter in application.read(application.dead_letters):
        headers = _headers(letter)
        assert headers["kafka_dlt-original-topic"].decode() == application.source
        assert int.from_bytes(headers["kafka_dlt-original-partition"]) == letter.partition()
        assert b"IllegalStateException" in headers["kafka_dlt-exception-cause-fqcn"]
