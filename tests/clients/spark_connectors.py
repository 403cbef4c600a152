"""The two ways from Spark into one cluster, behind one face: Spark's own connector and Klamm's data source."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.all_brokers import wait_until_everywhere

TIMEOUT_S = 60
QUERY_TIMEOUT_S = 120
FAILS = "fails"
_numbers = itertools.count()


@dataclass(frozen=True)
class Connector:
    """One of the two connectors. `format` is "kafka" or "klamm". For both, Kafka's client creates, fills and cuts
    topics."""

    format: str
    spark: Any
    bootstrap: str
    """The address at which `format` finds the brokers."""
    kafka_bootstrap: str
    admin: AdminClient
    producer: Producer
    directory: Path
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")
    """The prefix of the names of this connector's topics."""
    left_open: list[Producer] = field(default_factory=list)
    """Producers with an open transaction each, until the case is over."""

    def topic(self, partition_count: int = 2, suffix: str = "", **config: str) -> str:
        """A new topic."""
        name = f"{self.prefix}-{next(_numbers)}{suffix}"
        self.create(name, partition_count, **config)
        return name

    def create(self, name: str, partition_count: int = 2, **config: str) -> None:
        created = NewTopic(name, partition_count, 1, config=config)
        self.admin.create_topics([created])[name].result(TIMEOUT_S)

    def delete(self, name: str) -> None:
        """Deletes the topic and waits until all brokers have done so. Otherwise a broker that is behind would accept
        records for the deleted topic. A new topic of the same name would then lack them."""
        self.admin.delete_topics([name])[name].result(TIMEOUT_S)
        wait_until_everywhere(self.kafka_bootstrap, name, exists=False)

    def grow(self, name: str, partition_count: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partition_count)])[name].result(TIMEOUT_S)
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(self.producer.list_topics(name, TIMEOUT_S).topics[name].partitions) < partition_count:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    def delete_records(self, name: str, before: int) -> None:
        """Deletes the records of partition 0 before an offset."""
        tp = TopicPartition(name, 0, before)
        self.admin.delete_records([tp])[tp].result(TIMEOUT_S)

    def produce(self, topic: str, *values: str | None, partition: int = 0, **record: Any) -> None:
        for value in values:
            self.producer.produce(topic, value, partition=partition, **record)
        assert self.producer.flush(TIMEOUT_S) == 0

    def transactional(self, topic: str, *records: tuple[str, str]) -> None:
        """Writes each value in a transaction of its own, which ends as given: commit, abort, or leave (open)."""
        for value, end in records:
            producer = Producer({"bootstrap.servers": self.kafka_bootstrap, "transactional.id": uuid.uuid4().hex})
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            assert producer.flush(TIMEOUT_S) == 0
            if end == "commit":
                producer.commit_transaction(TIMEOUT_S)
            elif end == "abort":
                producer.abort_transaction(TIMEOUT_S)
            else:
                self.left_open.append(producer)

    def close(self) -> None:
        """Ends what was left open."""
        while self.left_open:
            self.left_open.pop().abort_transaction(TIMEOUT_S)

    def filled(self, *values: str, **config: str) -> str:
        """A topic of two partitions with these in the first."""
        name = self.topic(**config)
        self.produce(name, *values)
        return name

    @property
    def kafka_options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.kafka_bootstrap}

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}

    def frame(self, **options: str) -> Any:
        """Returns the rows of a batch query."""
        return self.spark.read.format(self.format).options(**{**self.options, **options}).load()

    def read(self, **options: str) -> list[str | None]:
        """All values of a batch query, in order of themselves."""
        found = self.frame(**options).selectExpr("cast(value as string) value").collect()
        return sorted((row.value for row in found), key=str)

    def write(self, frame: Any, **options: str) -> None:
        """Appends to topics."""
        frame.write.format(self.format).mode("append").options(**{**self.options, **options}).save()

    def stream(self, **options: str) -> Stream:
        return Stream(self, {"startingOffsets": "earliest", **options}, self.directory / uuid.uuid4().hex)


@dataclass
class Stream:
    """A query into files, run and run again from its checkpoint."""

    connector: Connector
    options: dict[str, str]
    directory: Path
    seen: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Rows of each batch of the last run that had any."""
    ends: list[dict[str, Any]] = field(default_factory=list)
    """The source's part of the last run's progress, for each batch."""

    def run(self, trigger: str = "availableNow", **options: str) -> list[str]:
        """Runs the query to its end, and returns the output that it had not written before."""
        query = (
            self.connector.spark.readStream.format(self.connector.format)
            .options(**{**self.connector.options, **self.options, **options})
            .load()
            .selectExpr("cast(value as string) value")
            .writeStream.format("json")
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(**{trigger: True})
            .start(str(self.directory / "out"))
        )
        try:
            query.awaitTermination(QUERY_TIMEOUT_S)
            assert not query.isActive, "the query does not end"
        finally:
            query.stop()
        progress = [each for each in query.recentProgress if each.numInputRows]
        self.sizes = [each.numInputRows for each in progress]
        self.ends = [json.loads(each.sources[0].json) for each in progress]
        everything = sorted(
            json.loads(line)["value"]
            for path in (self.directory / "out").glob("*.json")
            for line in path.read_text().splitlines()
        )
        fresh = list(everything)
        for value in self.seen:
            fresh.remove(value)
        self.seen = everything
        return fresh


def outcome(ask: Callable[[], Any]) -> Any:
    """Returns the result of `ask`, or FAILS if it raises."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - Java's errors and Python's have nothing else in common
        return FAILS


def outcomes(asks: Sequence[Callable[[], Any]]) -> list[Any]:
    return [outcome(ask) for ask in asks]
