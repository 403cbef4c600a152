"""Spark's own source and sink for Kafka, which knows nothing of Klamm, against the Kafka listener."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import java_programs

pytestmark = [pytest.mark.clients, pytest.mark.spark]
TIMEOUT_S = 60
COUNT = 300


def behaviour(text: str) -> pytest.MarkDecorator:
    return pytest.mark.behaviour('Spark\'s format("kafka")', text)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark_klamm import local_session

    jars = ",".join(map(str, java_programs.spark_jars()))
    session = local_session("clients", settings={"spark.jars": jars})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def topic(bootstrap: str, name: str, wait_until_known: Callable[[str], None]) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(TIMEOUT_S)
    wait_until_known(name)
    return name


def rows(spark: Any, first: int, end: int) -> Any:
    return spark.range(first, end).selectExpr("cast(id % 7 as string) key", "cast(id as string) value")


def values(frame: Any) -> list[int]:
    return sorted(int(row.value) for row in frame.selectExpr("cast(value as string) value").collect())


@behaviour("batch: writes, reads all, from offsets and from a time")
def test_sparks_kafka_source_reads_a_batch_by_offsets_and_timestamps(spark: Any, bootstrap: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    rows(spark, 0, COUNT).write.format("kafka").options(**options).save()
    reader = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    assert values(reader.load()) == list(range(COUNT))
    ends = {row.partition: row["count"] for row in reader.load().groupBy("partition").count().collect()}
    starts = json.dumps({topic: {"0": 10, "1": -2, "2": ends[2]}})
    assert reader.option("startingOffsets", starts).load().count() == ends[0] - 10 + ends[1]
    now_ms = int(1_000 * time.time())
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, "-1", partition=0, timestamp=now_ms + 600_000)
    assert producer.flush(TIMEOUT_S) == 0
    late = spark.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingTimestamp": str(now_ms + 300_000),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    )
    assert values(late.load()) == [-1]


@behaviour("streaming: from topic to topic, stopped and gone on with from its checkpoint")
def test_sparks_kafka_stream_copies_each_record_once_over_a_restart(
    spark: Any, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-out"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 2, 3)])[target].result(TIMEOUT_S)
    options = {"kafka.bootstrap.servers": bootstrap}

    def run() -> None:
        frame = spark.readStream.format("kafka").options(
            **options, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="100"
        )
        query = (
            frame.load()
            .select("key", "value")
            .writeStream.format("kafka")
            .options(**options, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    rows(spark, 0, COUNT).write.format("kafka").options(**options, topic=topic).save()
    run()
    rows(spark, COUNT, 2 * COUNT).write.format("kafka").options(**options, topic=topic).save()
    run()
    read = spark.read.format("kafka").options(**options, subscribe=target).load()
    assert values(read) == list(range(2 * COUNT))


@behaviour("reads what was committed of transactions")
def test_sparks_kafka_source_does_not_read_aborted_records(spark: Any, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for number in range(3):
        producer.begin_transaction()
        producer.produce(topic, str(number), partition=0)
        producer.flush(TIMEOUT_S)
        if number == 1:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.isolation.level": "read_committed"}
    assert values(spark.read.format("kafka").options(**options).load()) == [0, 2]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    # Three records, and a marker behind each.
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, 6)
    consumer.close()
