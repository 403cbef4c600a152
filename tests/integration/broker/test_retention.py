"""Tests that old segments are deleted and offsets stay, by retention and by DeleteRecords of a real process."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator

import pytest

from klamm import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from klamm.admin import ConfigChange, ConfigResource, ConfigResourceType, ReplicaDescription
from klamm.errors import OffsetOutOfRangeError
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.waiting import wait_until

SEGMENT_BYTES = 1024**2
VALUE = bytes(10_000)
EVENTS = TopicPartition("events", 0)
HOUR_MS = 3_600_000


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[KlammProcess]:
    with running_cluster(tmp_path, {"log.retention.check.interval.ms": "100"}) as cluster:
        yield cluster


def produce(cluster: KlammProcess, first: int, count: int, timestamp_ms: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, batch_size=100_000) as producer:
        for number in range(first, first + count):
            producer.send(EVENTS.topic, VALUE, key=b"%d" % number, timestamp_ms=timestamp_ms)


def log_files(cluster: KlammProcess) -> list[str]:
    """Returns the segment files, including those that are renamed and not removed yet."""
    return sorted(path.name for path in (cluster.data_dir / "broker" / str(EVENTS)).glob("*.log*"))


def described(admin: Admin) -> ReplicaDescription:
    """Returns the partition's entry in the answer to DescribeLogDirs."""
    ((log_dir,),) = admin.describe_log_dirs().values()
    return next(replica for replica in log_dir.replicas if replica.tp == EVENTS)


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Polls until at least `count` records are read, and returns them."""
    found: list[ConsumerRecord] = []

    def poll() -> None:
        found.extend(consumer.poll(1_000).get(EVENTS, []))

    wait_until(lambda: len(found) >= count, lambda: f"{len(found)} of {count} records", between=poll)
    return found


def create_topic(admin: Admin) -> None:
    configs = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1", "file.delete.delay.ms": "0"}
    admin.create_topics([NewTopic(EVENTS.topic, partition_count=1, configs=configs)])


def test_expired_segments_are_deleted_and_a_consumer_reads_the_records_after_them(cluster: KlammProcess) -> None:
    now_ms = time.time_ns() // 1_000_000
    settings = {"bootstrap_servers": cluster.bootstrap, "group_id": "readers", "max_poll_records": 10}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        create_topic(admin)
        produce(cluster, 0, 300, now_ms - 2 * HOUR_MS)
        assert len(log_files(cluster)) >= 3
        with Consumer(**settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([EVENTS])
            read(consumer, 1)
            consumer.commit()

        change = ConfigChange(name="retention.ms", value=str(HOUR_MS))
        admin.incremental_alter_configs({ConfigResource(ConfigResourceType.TOPIC, EVENTS.topic): [change]})
        wait_until(lambda: described(admin).size_bytes == 0)
        wait_until(lambda: log_files(cluster) == ["00000000000000000300.log"])
        produce(cluster, 300, 5, now_ms)
        assert (described(admin).log_start_offset, described(admin).log_end_offset) == (300, 305)

    cluster.kill()
    cluster.start()
    with Consumer(**settings, auto_offset_reset="none") as consumer:
        consumer.assign([EVENTS])
        with pytest.raises(OffsetOutOfRangeError):
            wait_until(lambda: bool(consumer.poll(1_000)))
    with Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([EVENTS])
        found = read(consumer, 5)
    assert [(record.offset, record.key) for record in found] == [(number, b"%d" % number) for number in range(300, 305)]


def test_deleted_records_free_whole_segments_and_stay_deleted(cluster: KlammProcess) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        create_topic(admin)
        produce(cluster, 0, 300, time.time_ns() // 1_000_000)
        before = described(admin)
        assert before.size_bytes > 300 * len(VALUE)
        assert admin.delete_records({EVENTS: 250}) == {EVENTS: 250}
        wait_until(lambda: described(admin).size_bytes < before.size_bytes // 2)
        wait_until(lambda: all(int(name[:20]) > 0 for name in log_files(cluster)))
        with pytest.raises(OffsetOutOfRangeError):
            admin.delete_records({EVENTS: 301})
    cluster.stop()
    cluster.start()
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([EVENTS])
        found = read(consumer, 50)
    assert [record.offset for record in found] == list(range(250, 300))
