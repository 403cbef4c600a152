"""Spark's real-time mode with Spark's own source and sink for Kafka, against the Kafka listener.

A real-time batch runs until its trigger's duration is over, and writes each record at once. Spark's sink for Kafka
delivers at least once: a batch that was not committed when the query stopped runs again after a restart. Spark commits
the batches of a query with state one by one, and those of a query without state in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.test_failover import Leader
from tests.support import java_programs
from tests.support.violation import require, verdict
from tests.support.waiting import patience, wait_until

pytestmark = [pytest.mark.clients, pytest.mark.spark]
COUNT = 200
SOURCE_PARTITIONS = 2
TARGET_PARTITIONS = 3
CORES = 6
"""Task slots. In real-time mode all tasks of a query run at once: two that read, and two that remove duplicates."""
SETTINGS = {
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1s",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Real-time mode refuses version 1.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}


def behaviour(text: str) -> pytest.MarkDecorator:
    return pytest.mark.behaviour("Spark's real-time mode", text)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark_klamm import local_session

    jars = ",".join(map(str, java_programs.spark_jars()))
    session = local_session("real-time", cores=CORES, settings={"spark.jars": jars, **SETTINGS})
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()


class Pipe:
    """A real-time query from the topic `source` to the topic `target`, and clients at both ends."""

    def __init__(self, spark: Any, bootstrap: str, source: str, target: str, checkpoint: Path) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": bootstrap}
        self._source = source
        self._target = target
        self._checkpoint = checkpoint
        self._query: Any = None
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._reader = Consumer({"bootstrap.servers": bootstrap, "group.id": target, "auto.offset.reset": "earliest"})
        self._reader.subscribe([target])
        self.written: list[int] = []
        """The values read from the target."""

    def start(self, made_of: Callable[[Any], Any]) -> None:
        """Starts the query, from its checkpoint if there is one. `made_of` returns the frame to write."""
        frame = self._spark.readStream.format("kafka").options(
            **self._options, subscribe=self._source, startingOffsets="earliest"
        )
        self._query = (
            made_of(frame.load())
            .writeStream.format("kafka")
            .options(**self._options, topic=self._target, checkpointLocation=str(self._checkpoint))
            .outputMode("update")
            .trigger(realTime="2 seconds")
            .start()
        )

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def close(self) -> None:
        self.stop()
        self._reader.close()

    def send(self, values: range) -> None:
        for value in values:
            self._producer.produce(self._source, str(value))
            self._producer.poll(0)
        assert self._producer.flush(patience()) == 0

    def read(self) -> None:
        """Reads some of the target, and fails if the query has failed."""
        assert self._query.isActive, self._query.exception()
        for record in self._reader.consume(1_000, 0.1):
            value = record.value()
            assert not record.error(), record.error()
            assert value is not None
            self.written.append(int(value))

    def read_until(self, is_enough: Callable[[], bool]) -> None:
        wait_until(is_enough, lambda: (sorted(self.written), self._query.status), between=self.read)

    def read_until_batches_ended(self, count: int) -> None:
        """Reads until the batches that the query has ended since its start hold at least `count` input records."""
        self.read_until(lambda: sum(batch.numInputRows for batch in self._query.recentProgress) >= count)

    def first_batch_id(self) -> int:
        """Returns the id of the first batch since the start: 0 if the query began without a checkpoint."""
        return int(self._query.recentProgress[0].batchId)


@pytest.fixture
def target(bootstrap: str, name: str, wait_until_known: Callable[[str], None]) -> str:
    topic = f"{name}-out"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, TARGET_PARTITIONS, 3)])[topic].result(patience())
    wait_until_known(topic)
    return topic


@pytest.fixture
def source(bootstrap: str, name: str, wait_until_known: Callable[[str], None]) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, SOURCE_PARTITIONS, 3)])[name].result(patience())
    wait_until_known(name)
    return name


@pytest.fixture
def pipe(spark: Any, bootstrap: str, name: str, target: str, tmp_path: Path) -> Iterator[Pipe]:
    one = Pipe(spark, bootstrap, name, target, tmp_path / "checkpoint")
    yield one
    one.close()


def thousand_more(frame: Any) -> Any:
    return frame.selectExpr("key", "cast(cast(cast(value as string) as int) + 1000 as string) value")


def without_duplicates(frame: Any) -> Any:
    return frame.selectExpr("cast(value as string) value").dropDuplicates(["value"])


@behaviour("maps each record, stopped in a batch and gone on with from its checkpoint")
@pytest.mark.usefixtures("source")
def test_each_record_is_mapped_over_a_restart(pipe: Pipe) -> None:
    pipe.start(thousand_more)
    pipe.send(range(COUNT))
    pipe.read_until_batches_ended(COUNT)
    pipe.send(range(COUNT, 2 * COUNT))
    pipe.read_until(lambda: len(set(pipe.written)) > COUNT)
    pipe.stop()
    pipe.send(range(2 * COUNT, 3 * COUNT))
    pipe.start(thousand_more)
    pipe.read_until_batches_ended(COUNT)
    pipe.read_until(lambda: len(set(pipe.written)) >= 3 * COUNT)
    assert pipe.first_batch_id() > 0
    with verdict():
        assert set(pipe.written) == set(range(1_000, 1_000 + 3 * COUNT))


@behaviour("removes duplicates with state, stopped and gone on with from its checkpoint")
@pytest.mark.usefixtures("source")
def test_duplicates_are_removed_over_a_restart(pipe: Pipe) -> None:
    pipe.start(without_duplicates)
    pipe.send(range(COUNT))
    pipe.send(range(COUNT))
    pipe.read_until_batches_ended(2 * COUNT)
    pipe.read_until(lambda: len(pipe.written) >= COUNT)
    pipe.stop()
    pipe.send(range(2 * COUNT))
    pipe.start(without_duplicates)
    pipe.send(range(2 * COUNT))
    pipe.read_until_batches_ended(4 * COUNT)
    assert pipe.first_batch_id() > 0
    pipe.read_until(lambda: len(pipe.written) >= 2 * COUNT)
    # Each batch with records was committed when the query stopped, so each value is there once.
    with verdict():
        assert sorted(pipe.written) == list(range(2 * COUNT))


@behaviour("goes on when a leader is killed")
def test_the_query_goes_on_when_a_leader_is_killed(cluster: Any, name: str, pipe: Pipe) -> None:
    leader = Leader(cluster, name)
    pipe.start(thousand_more)
    try:
        pipe.send(range(COUNT))
        pipe.read_until(lambda: len(set(pipe.written)) >= COUNT)
        leader.kill()
        pipe.send(range(COUNT, 2 * COUNT))
        pipe.read_until(lambda: len(set(pipe.written)) >= 2 * COUNT)
        pipe.read_until_batches_ended(2 * COUNT)
    finally:
        leader.wait_whole()
    require(set(pipe.written) == set(range(1_000, 1_000 + 2 * COUNT)), f"{sorted(pipe.written)}")
