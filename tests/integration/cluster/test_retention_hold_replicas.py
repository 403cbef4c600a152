"""Tests that followers of a topic with a hold delete nothing by themselves, and follow the leader's log start."""

from __future__ import annotations

import pathlib
import signal
import time

from klamm import Admin, NewTopic, Producer
from klamm.admin import ConfigChange, ConfigResource, ConfigResourceType
from tests.support.broker_cluster import BrokerCluster, describe, read_samples
from tests.support.waiting import wait_until

SEGMENT_BYTES = 1024**2
COUNT = 300
HOUR_MS = 3_600_000


def create(cluster: BrokerCluster, admin: Admin, topic: str, groups: str) -> None:
    """Creates a topic with a replica on each broker and expired records in several segments."""
    configs = {
        "segment.bytes": str(SEGMENT_BYTES),
        "retention.ms": str(HOUR_MS),
        "retention.hold.groups": groups,
        "file.delete.delay.ms": "0",
    }
    admin.create_topics([NewTopic(topic, partition_count=1, replication_factor=2, configs=configs)])
    timestamp_ms = time.time_ns() // 1_000_000 - 2 * HOUR_MS
    with Producer(bootstrap_servers=cluster.bootstrap, batch_size=100_000, acks="all") as producer:
        for number in range(COUNT):
            producer.send(topic, bytes(10_000), key=b"%d" % number, timestamp_ms=timestamp_ms)


def log_starts(admin: Admin, topic: str) -> dict[int, int]:
    """Returns the first offset of each replica's log, by broker."""
    return {
        broker_id: replica.log_start_offset
        for broker_id, log_dirs in admin.describe_log_dirs().items()
        for log_dir in log_dirs
        for replica in log_dir.replicas
        if replica.tp.topic == topic
    }


def held_bytes(cluster: BrokerCluster, broker_id: int, topic: str) -> float:
    """Returns the bytes that a broker, as the topic's leader, keeps for groups."""
    port = int(cluster.brokers[broker_id].settings["metrics.port"])
    name = "klamm_broker_partition_retention_held_bytes"
    return sum(sample.value for sample in read_samples(port) if sample.name == name and sample.labels["topic"] == topic)


def first_segments(cluster: BrokerCluster, topic: str) -> list[int]:
    """Returns the first offset of the first segment file of each broker."""
    return [
        min(int(path.name[:20]) for path in (cluster.log_dir(broker_id) / f"{topic}-0").glob("*.log"))
        for broker_id in cluster.brokers
    ]


def test_a_follower_keeps_and_deletes_what_the_leader_does(tmp_path: pathlib.Path) -> None:
    """No group has ever committed in this cluster, so a named group has not begun, and any group holds nothing."""
    cluster = BrokerCluster(tmp_path, brokers=2, log_dirs=1, settings={"log.retention.check.interval.ms": "100"})
    cluster.start()
    try:
        with cluster.admin() as admin:
            create(cluster, admin, "held", "nobody")
            create(cluster, admin, "other", "")
            wait_until(lambda: set(log_starts(admin, "other").values()) == {COUNT}, cluster.logs)
            leader = describe(admin, "held").partitions[0].leader
            (follower,) = cluster.brokers.keys() - {leader}
            wait_until(lambda: held_bytes(cluster, leader, "held") > 0, cluster.logs)
            assert log_starts(admin, "held") == {1: 0, 2: 0}

            cluster.brokers[leader].end(signal.SIGKILL)
            wait_until(lambda: describe(admin, "held").partitions[0].leader == follower, cluster.logs)
            wait_until(lambda: held_bytes(cluster, follower, "held") > 0, cluster.logs)
            cluster.brokers[leader].start()
            wait_until(lambda: len(describe(admin, "held").partitions[0].isr) == 2, cluster.logs)
            assert log_starts(admin, "held") == {1: 0, 2: 0}

            change = ConfigChange(name="retention.hold.groups", value="*")
            admin.incremental_alter_configs({ConfigResource(ConfigResourceType.TOPIC, "held"): [change]})
            wait_until(lambda: log_starts(admin, "held") == {1: COUNT, 2: COUNT}, cluster.logs)
            wait_until(lambda: min(first_segments(cluster, "held")) > 0, cluster.logs)
    finally:
        for server in (*cluster.brokers.values(), cluster.controller):
            if server.running:
                server.end(signal.SIGTERM)
