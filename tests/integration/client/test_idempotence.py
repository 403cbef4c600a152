"""Idempotent processing of the records of a real cluster: crashes, rebalances, and topics that are created again."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from klamm import Admin, Consumer, ConsumerRecord, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.errors import IllegalStateError
from klamm.idempotence import ProcessedOffsets
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.seeds import run_seed
from tests.support.waiting import patience, wait_until

RECORDS = 1_000
KILLS = 15
LONGEST_COMMIT_S = 0.004
"""About the longest time that SQLite needs for a commit."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def fill(cluster: KlammProcess, topic: str, count: int, partitions: int = 1) -> None:
    """Creates the topic, with the numbers below `count` as values."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partition_count=partitions)])
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)
        producer.flush(patience())


@contextmanager
def job(cluster: KlammProcess, topic: str, database: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    """Yields a running billing job, and kills it at the end."""
    command = [sys.executable, "-m", "tests.support.billing_job", cluster.bootstrap, topic, str(database), mark]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_lines(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline(), "the job has ended by itself"


@pytest.mark.parametrize("mark", ["offsets", "ids"])
def test_each_record_counts_once_although_the_process_is_killed_at_random_moments(
    cluster: KlammProcess, tmp_path: Path, mark: str
) -> None:
    topic, database, rng = f"killed-{mark}", tmp_path / "billing.db", random.Random(run_seed())
    fill(cluster, topic, RECORDS, partitions=3)
    with closing(sqlite3.connect(database, timeout=patience())) as connection:
        connection.execute("CREATE TABLE balance (total INTEGER)")
        connection.execute("CREATE TABLE applied (number INTEGER)")
        connection.execute("INSERT INTO balance VALUES (0)")
        connection.commit()

        def applied() -> list[int]:
            return [number for (number,) in connection.execute("SELECT number FROM applied ORDER BY number")]

        for _ in range(KILLS):
            with job(cluster, topic, database, mark) as process:
                read_lines(process, rng.randrange(120))
                # A line comes between two statements. The kill shall also come within one, and within a commit.
                threading.Event().wait(rng.choice((0, rng.uniform(0, LONGEST_COMMIT_S))))
        assert len(set(applied())) == len(applied()) < RECORDS, "twice, or the kills came too late"
        with job(cluster, topic, database, mark):
            wait_until(lambda: len(applied()) >= RECORDS, lambda: f"{len(applied())} applied")

        assert applied() == list(range(RECORDS))
        assert connection.execute("SELECT total FROM balance").fetchone() == (sum(range(RECORDS)),)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "effects.db")) as opened:
        opened.execute("CREATE TABLE effects (number INTEGER)")
        yield opened


def insert(cursor: sqlite3.Cursor, record: ConsumerRecord[Any, Any]) -> None:
    cursor.execute("INSERT INTO effects VALUES (?)", (int(record.value),))


def consume(
    cluster: KlammProcess, topic: str, group: str, processed: ProcessedOffsets, until: int, **settings: Any
) -> list[int]:
    """Processes records until the one with the number `until`, and returns the numbers that the consumer has read."""
    read: list[int] = []
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    with Consumer(bootstrap_servers=cluster.bootstrap, group_id=group, **settings) as consumer:
        consumer.subscribe([topic], listener=processed.listener(consumer))
        for record in consumer:
            processed.process(insert, record)
            read.append(int(record.value))
            if read[-1] >= until:
                return read
    raise AssertionError("the consumer ended")


def commit(cluster: KlammProcess, topic: str, group: str, offset: int) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap, group_id=group) as consumer:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        consumer.commit({tp: OffsetAndMetadata(offset)})


@pytest.mark.parametrize(("name", "committed"), [("behind", 2), ("ahead", 8)])
def test_a_consumer_continues_at_the_databases_offset_wherever_the_group_has_committed(
    cluster: KlammProcess, connection: sqlite3.Connection, name: str, committed: int
) -> None:
    topic = group = f"committed-{name}"
    fill(cluster, topic, 10)
    processed = ProcessedOffsets(connection, group=group)
    assert consume(cluster, topic, group, processed, until=4) == [0, 1, 2, 3, 4]
    commit(cluster, topic, group, committed)

    assert consume(cluster, topic, group, processed, until=9) == [5, 6, 7, 8, 9]
    assert connection.execute("SELECT number FROM effects").fetchall() == [(number,) for number in range(10)]


def test_without_a_stored_offset_a_consumer_begins_at_the_committed_one(
    cluster: KlammProcess, connection: sqlite3.Connection
) -> None:
    topic = group = "no-stored-offset"
    fill(cluster, topic, 10)
    commit(cluster, topic, group, 7)

    assert consume(cluster, topic, group, ProcessedOffsets(connection, group=group), until=9) == [7, 8, 9]


def test_a_topic_that_was_created_again_is_an_error_until_it_is_forgotten(
    cluster: KlammProcess, connection: sqlite3.Connection
) -> None:
    topic = group = "created-again"
    fill(cluster, topic, 10)
    processed = ProcessedOffsets(connection, group=group)
    consume(cluster, topic, group, processed, until=9)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics(), lambda: "the topic still exists")
    fill(cluster, topic, 3)

    with pytest.raises(IllegalStateError, match=rf"up to offset 10, but its log ends at 3: .* forget\('{topic}'\)"):
        consume(cluster, topic, group, processed, until=2)
    processed.forget(topic)
    assert consume(cluster, topic, group, processed, until=2) == [0, 1, 2]


def test_a_consumer_that_lost_its_partition_cannot_apply_a_record_again(
    cluster: KlammProcess, tmp_path: Path, connection: sqlite3.Connection
) -> None:
    """The old owner has read records that the new owner processes before it."""
    topic = group = "zombie"
    fill(cluster, topic, 6)
    old = ProcessedOffsets(connection, group=group)
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as zombie:
        zombie.assign([TopicPartition(topic, 0)])
        read = zombie.poll(patience() * 1000)[TopicPartition(topic, 0)]
        assert old.process(insert, *read[:2]) == 2
        with closing(sqlite3.connect(tmp_path / "effects.db")) as another:
            assert consume(cluster, topic, group, ProcessedOffsets(another, group=group), until=5) == [2, 3, 4, 5]

        assert [old.process(insert, record) for record in read[2:]] == [0, 0, 0, 0]
    assert connection.execute("SELECT count(*) FROM effects").fetchone() == (6,)
