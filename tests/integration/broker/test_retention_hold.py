"""Tests that retention of a real process waits for the groups that a topic names, and no longer than its bounds."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from klamm import Admin, Consumer, ConsumerGroupMetadata, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from klamm.admin import ConfigChange, ConfigResource, ConfigResourceType
from klamm.errors import EXCEPTIONS, ErrorCode
from tests.support.broker_cluster import read_samples
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.ports import free_port
from tests.support.waiting import wait_until

SEGMENT_BYTES = 1024**2
VALUE = bytes(10_000)
COUNT = 300
HOUR_MS = 3_600_000
AGE_MS = 2 * HOUR_MS
"""The age of the records that the tests write."""
GROUP = "billing"
CONFIGS = {
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.ms": str(HOUR_MS),
    "retention.hold.groups": GROUP,
    "file.delete.delay.ms": "0",
}


class HeldCluster:
    """A cluster that checks retention all the time, and shows its metrics."""

    def __init__(self, process: KlammProcess, metrics_port: int, admin: Admin) -> None:
        self.process = process
        self.admin = admin
        self._metrics_port = metrics_port

    def create(self, topic: str, **changes: str) -> TopicPartition:
        """Creates a topic of one partition with expired records in several segments."""
        configs = CONFIGS | {name.replace("_", "."): value for name, value in changes.items()}
        self.admin.create_topics([NewTopic(topic, partition_count=1, configs=configs)])
        timestamp_ms = time.time_ns() // 1_000_000 - AGE_MS
        with Producer(bootstrap_servers=self.process.bootstrap, batch_size=100_000) as producer:
            for number in range(COUNT):
                producer.send(topic, VALUE, key=b"%d" % number, timestamp_ms=timestamp_ms)
        return TopicPartition(topic, 0)

    def set(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        self.admin.incremental_alter_configs({resource: [ConfigChange(name=name, value=value)]})

    def commit(self, partition: TopicPartition, offset: int, group_id: str = GROUP) -> None:
        settings = {"bootstrap_servers": self.process.bootstrap, "enable_auto_commit": False}
        with Consumer(**settings, group_id=group_id) as consumer:
            consumer.assign([partition])
            consumer.commit({partition: OffsetAndMetadata(offset)})

    def start_offset(self, partition: TopicPartition) -> int:
        ((log_dir,),) = self.admin.describe_log_dirs().values()
        return next(replica.log_start_offset for replica in log_dir.replicas if replica.tp == partition)

    def metric(self, name: str, **labels: str) -> float | None:
        """Returns the value of the metric with at least these labels, or None."""
        for sample in read_samples(self._metrics_port):
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
        return None

    def holder(self, partition: TopicPartition) -> str | None:
        """Returns the group for which the last check of retention kept records, or None."""
        name = "klamm_broker_partition_retention_held_bytes"
        for sample in read_samples(self._metrics_port):
            if sample.name == name and sample.labels["topic"] == partition.topic:
                return sample.labels["group"]
        return None

    def wait_held(self, partition: TopicPartition, group_id: str = GROUP) -> int:
        """Waits until a check of retention kept records for the group, and returns the log start offset."""
        wait_until(lambda: self.holder(partition) == group_id)
        return self.start_offset(partition)

    def wait_released(self, partition: TopicPartition) -> None:
        """Waits until retention has deleted every record."""
        wait_until(lambda: self.start_offset(partition) == COUNT)
        wait_until(lambda: self.holder(partition) is None)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeldCluster]:
    port = free_port()
    settings = {"log.retention.check.interval.ms": "100", "metrics.port": str(port)}
    directory: pathlib.Path = tmp_path_factory.mktemp("held")
    with (
        running_cluster(directory, settings) as process,
        Admin(bootstrap_servers=process.bootstrap) as admin,
    ):
        yield HeldCluster(process, port, admin)


def test_a_stopped_group_keeps_its_records_until_it_commits(cluster: HeldCluster) -> None:
    held, other = cluster.create("held"), cluster.create("other", retention_hold_groups="")
    wait_until(lambda: cluster.start_offset(other) == COUNT)
    assert cluster.wait_held(held) == 0, "a named group that has not begun holds every record"
    ((log_dir,),) = cluster.admin.describe_log_dirs().values()
    (replica,) = [one for one in log_dir.replicas if one.tp == held]
    assert (replica.held_bytes, replica.held_for) == (replica.size_bytes, GROUP)

    cluster.commit(held, 250)
    wait_until(lambda: cluster.start_offset(held) > 0)
    assert 100 < cluster.wait_held(held) <= 250, "the segment of offset 250 stays"
    settings = {"bootstrap_servers": cluster.process.bootstrap, "enable_auto_commit": False}
    with Consumer(**settings, group_id=GROUP) as consumer:
        consumer.assign([held])
        found = wait_until(lambda: consumer.poll(1_000).get(held))
        assert found[0].offset == 250

    cluster.commit(held, COUNT)
    cluster.wait_released(held)


def test_the_slowest_group_counts(cluster: HeldCluster) -> None:
    partition = cluster.create("slowest", retention_hold_groups="fast,slow")
    cluster.commit(partition, COUNT, "fast")
    cluster.commit(partition, 1, "slow")
    assert cluster.wait_held(partition, "slow") == 0
    cluster.commit(partition, COUNT, "slow")
    cluster.wait_released(partition)


@pytest.mark.parametrize(("topic", "hold"), [("of-any-group", "*"), ("of-a-named-group", "gone")])
def test_a_deleted_group_releases_its_hold(cluster: HeldCluster, topic: str, hold: str) -> None:
    partition = cluster.create(topic, retention_ms="-1", retention_hold_groups=hold)
    cluster.commit(partition, 5, "gone")
    cluster.set(partition.topic, "retention.ms", str(HOUR_MS))
    assert cluster.wait_held(partition, "gone") == 0
    cluster.admin.delete_groups(["gone"])
    cluster.wait_released(partition)


def test_a_deleted_group_that_begins_again_holds_again(cluster: HeldCluster) -> None:
    partition = cluster.create("begun-again", retention_ms="-1", retention_hold_groups="reborn")
    cluster.commit(partition, 5, "reborn")
    cluster.admin.delete_groups(["reborn"])
    elsewhere = cluster.create("meanwhile-begun", retention_hold_groups="")
    cluster.commit(elsewhere, 5, "reborn")
    cluster.set(partition.topic, "retention.ms", str(HOUR_MS))
    assert cluster.wait_held(partition, "reborn") == 0
    cluster.admin.delete_groups(["reborn"])
    cluster.wait_released(partition)


def test_a_topic_that_names_a_deleted_group_again_waits_for_it(cluster: HeldCluster) -> None:
    partition = cluster.create("named-again", retention_ms="-1", retention_hold_groups="twice")
    cluster.commit(partition, 5, "twice")
    cluster.admin.delete_groups(["twice"])
    cluster.set(partition.topic, "retention.hold.groups", "")
    # The commit is stored after the coordinator has seen the config.
    cluster.commit(partition, COUNT, "later")
    cluster.set(partition.topic, "retention.hold.groups", "twice,later")
    cluster.set(partition.topic, "retention.ms", str(HOUR_MS))
    assert cluster.wait_held(partition, "twice") == 0


def test_a_coordinator_that_starts_again_knows_the_deleted_groups(tmp_path: pathlib.Path) -> None:
    port = free_port()
    settings = {"log.retention.check.interval.ms": "100", "metrics.port": str(port)}
    with running_cluster(tmp_path, settings) as process:
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            cluster = HeldCluster(process, port, admin)
            partition = cluster.create("remembered", retention_ms="-1", retention_hold_groups="gone,stays")
            cluster.commit(partition, 5, "gone")
            cluster.commit(partition, COUNT, "stays")
            admin.delete_groups(["gone"])
        process.kill()
        process.start()
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            cluster = HeldCluster(process, port, admin)
            cluster.set(partition.topic, "retention.ms", str(HOUR_MS))
            cluster.wait_released(partition)


def test_a_group_without_offsets_in_the_topic_holds_nothing_for_any_group(cluster: HeldCluster) -> None:
    elsewhere = cluster.create("elsewhere")
    cluster.commit(elsewhere, 5, "reader")
    cluster.wait_released(cluster.create("unread", retention_hold_groups="*"))


def test_a_named_group_is_released_by_its_removal_from_the_config(cluster: HeldCluster) -> None:
    partition = cluster.create("renamed", retention_hold_groups="never")
    assert cluster.wait_held(partition, "never") == 0
    cluster.set(partition.topic, "retention.hold.groups", "")
    wait_until(lambda: cluster.start_offset(partition) == COUNT)


def test_the_bound_by_age_is_kept_and_counted(cluster: HeldCluster) -> None:
    partition = cluster.create("bounded-by-age")
    assert cluster.wait_held(partition) == 0
    left_s = cluster.metric("klamm_broker_partition_retention_hold_left_seconds", topic=partition.topic)
    assert left_s is not None
    assert 13 * 24 * 3600 < left_s < 14 * 24 * 3600
    cluster.set(partition.topic, "retention.hold.max.ms", str(AGE_MS - HOUR_MS // 2))
    cluster.wait_released(partition)
    unread = cluster.metric("klamm_broker_retention_hold_unread_deleted_records_total", topic=partition.topic)
    assert unread == COUNT
    line = f"retention deleted records at a bound of retention.hold before they were read, partition={partition}"
    assert line in cluster.process.log_path.read_text()


def test_the_bound_by_size_is_kept(cluster: HeldCluster) -> None:
    partition = cluster.create("bounded-by-size", retention_hold_max_bytes=str(SEGMENT_BYTES))
    wait_until(lambda: cluster.start_offset(partition) > 0)
    assert cluster.wait_held(partition) < COUNT
    ((log_dir,),) = cluster.admin.describe_log_dirs().values()
    (size_bytes,) = [replica.size_bytes for replica in log_dir.replicas if replica.tp == partition]
    assert SEGMENT_BYTES <= size_bytes < 2 * SEGMENT_BYTES


def test_deleted_records_are_not_held(cluster: HeldCluster) -> None:
    partition = cluster.create("deleted")
    assert cluster.wait_held(partition) == 0
    assert cluster.admin.delete_records({partition: 250}) == {partition: 250}
    files = cluster.process.data_dir / "broker" / str(partition)
    wait_until(lambda: all(int(path.name[:20]) > 0 for path in files.glob("*.log")))
    assert cluster.start_offset(partition) == 250


def test_a_commit_of_librdkafka_releases_the_records(cluster: HeldCluster) -> None:
    partition = cluster.create("librdkafka")
    assert cluster.wait_held(partition) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.process.kafka_bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    )
    try:
        offset = confluent_kafka.TopicPartition(partition.topic, partition.partition, COUNT)
        consumer.commit(offsets=[offset], asynchronous=False)
    finally:
        consumer.close()
    cluster.wait_released(partition)


def test_offsets_of_a_transaction_count_when_it_commits(cluster: HeldCluster) -> None:
    partition = cluster.create("transactional")
    with Producer(bootstrap_servers=cluster.process.bootstrap, transactional_id="copy") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("copies", b"")
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(COUNT)}, ConsumerGroupMetadata(GROUP))
        producer.flush()
        deleted = cluster.create("meanwhile", retention_hold_groups="")
        wait_until(lambda: cluster.start_offset(deleted) == COUNT)
        assert cluster.wait_held(partition) == 0
        producer.commit_transaction()
    cluster.wait_released(partition)


def test_a_bound_below_retention_is_refused(cluster: HeldCluster) -> None:
    partition = cluster.create("refused", retention_ms="-1")
    with pytest.raises(
        EXCEPTIONS[ErrorCode.INVALID_CONFIG], match=r"retention\.hold\.max\.ms=1209600000 is less than retention\.ms="
    ):
        cluster.set(partition.topic, "retention.ms", str(30 * 24 * HOUR_MS))


def test_the_command_line_shows_what_is_held(cluster: HeldCluster) -> None:
    partition = cluster.create("shown")
    cluster.wait_held(partition)
    command = [sys.executable, "-m", "klamm", "log-dirs", "describe", partition.topic]
    output = subprocess.check_output([*command, "--bootstrap", cluster.process.bootstrap], text=True)
    header, row = output.splitlines()
    assert header.split()[-3:] == ["HELD", "HELD", "FOR"]
    size_bytes = row.split()[4]
    assert row.split()[-2:] == [size_bytes, GROUP]
