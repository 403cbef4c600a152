"""Tests damaged bytes on the disks of a real cluster: found, repaired from another replica, or reported."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.support.broker_cluster import BrokerCluster, broker_cluster, describe
from tests.support.cli_runner import KlammCommand
from tests.support.cli_terminal import on_terminal
from tests.support.waiting import wait_until

SEGMENT_BYTES = 1024 * 1024
VALUE_BYTES = 14_000
COUNT = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with broker_cluster(
        tmp_path_factory.mktemp("scrubbing"),
        log_segment_bytes=str(SEGMENT_BYTES),
        log_scrub_bytes_per_second=str(10**9),
        log_scrub_interval_ms="-1",
        log_flush_scheduler_interval_ms="200",
        log_flush_offset_checkpoint_interval_ms="200",
    ) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: BrokerCluster) -> Iterator[Admin]:
    with cluster.admin() as made:
        yield made


def value(number: int) -> bytes:
    return b"%06d" % number + random.Random(number).randbytes(VALUE_BYTES)


def fill(cluster: BrokerCluster, admin: Admin, topic: str, replicas: dict[int, tuple[int, ...]]) -> None:
    """Writes several closed segments and waits until they are on the disks of all replicas."""
    admin.create_topics([NewTopic(topic, assignments=replicas)])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", batch_size=16_384) as producer:
        for number in range(COUNT):
            producer.send(topic, value(number), partition=0)
        producer.flush()
    wait_until(lambda: all(len(segments(cluster, replica, topic)) > 5 for replica in replicas[0]), cluster.logs)
    wait_until(lambda: all(is_flushed(cluster, replica, topic) for replica in replicas[0]), cluster.logs)


def is_flushed(cluster: BrokerCluster, broker_id: int, topic: str) -> bool:
    """Returns True if all closed segments are on disk. The scrubber reads no others."""
    checkpoint = cluster.log_dir(broker_id) / "recovery-point-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    points = [int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")]
    return bool(points) and points[0] >= int(segments(cluster, broker_id, topic)[-1].stem)


def damaged_segments(cluster: BrokerCluster, broker_id: int) -> float:
    """Returns the broker's count of damaged segments, or -1 while the broker does not serve its metrics."""
    try:
        return cluster.metric(broker_id, "klamm_broker_log_scrub_damaged_segments")
    except OSError:
        return -1


def segments(cluster: BrokerCluster, broker_id: int, topic: str) -> list[Path]:
    return sorted((cluster.log_dir(broker_id) / f"{topic}-0").glob("*.log"))


def flip(path: Path, rng: random.Random, *, times: int = 1) -> None:
    data = bytearray(path.read_bytes())
    for at in rng.sample(range(len(data)), times):
        data[at] ^= rng.randrange(1, 256)
    with path.open("r+b") as file:
        file.write(data)


def sealed_bytes(cluster: BrokerCluster, broker_id: int, topic: str) -> list[bytes]:
    return [path.read_bytes() for path in segments(cluster, broker_id, topic)[:-1]]


def read_all(cluster: BrokerCluster, topic: str) -> list[bytes]:
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes] = []

        def enough() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                values.extend(record.value for record in records if record.value is not None)
            return len(values) >= COUNT

        wait_until(enough, cluster.logs)
    return values


def test_damage_of_a_follower_and_of_a_leader_is_found_and_repaired(cluster: BrokerCluster, admin: Admin) -> None:
    fill(cluster, admin, "orders", {0: (1, 2, 3)})
    klamm, rng = KlammCommand(cluster.bootstrap), random.Random(1)
    sound = sealed_bytes(cluster, 3, "orders")
    assert sealed_bytes(cluster, 1, "orders") == sealed_bytes(cluster, 2, "orders") == sound
    assert describe(admin, "orders").partitions[0].leader == 1
    flip(segments(cluster, 2, "orders")[0], rng, times=3)
    flip(segments(cluster, 2, "orders")[3], rng)
    flip(segments(cluster, 1, "orders")[2], rng)
    flip(segments(cluster, 1, "orders")[2].with_suffix(".index"), rng)
    index = segments(cluster, 3, "orders")[1].with_suffix(".timeindex")
    index.write_bytes(b"")

    before = klamm.ok("log", "scrub", "--status", "orders", "--json").document
    dry = klamm.ok("log", "scrub", "orders", "--dry-run")
    assert dry.out == f"would read {len(before)} replicas on {len({row['broker'] for row in before})} brokers\n"
    assert klamm.ok("log", "scrub", "orders", "--dry-run", "--json").document == before
    told = klamm.ok("log", "scrub", "orders")
    assert told.out.count(": repaired: ") == 4, told.out
    assert "after it handed over the leadership" in told.out
    for broker_id in (1, 2, 3):
        assert sealed_bytes(cluster, broker_id, "orders") == sound
    assert index.stat().st_size > 0
    assert cluster.metric(2, "klamm_broker_log_scrub_repaired_segments_total") == 2
    wait_until(lambda: cluster.metric(1, "klamm_broker_log_scrub_damaged_segments") == 0, cluster.logs)
    assert describe(admin, "orders").partitions[0].leader_epoch > 0
    wait_until(lambda: len(describe(admin, "orders").partitions[0].isr) == 3, cluster.logs)
    assert read_all(cluster, "orders") == [value(number) for number in range(COUNT)]
    shown = on_terminal(klamm, "log", "scrub", "orders:0")
    assert re.search(r"\d of 3 replicas read, 0 damaged, [\d.]+ \w+/s", shown)
    again = klamm.ok("log", "scrub", "orders:0", "--json").document
    assert [one["damages"] for one in again] == [[], [], []], "what was repaired before is not told again"
    status = klamm.ok("log", "scrub", "--status", "orders", "--json").document
    assert sum(len(one["damages"]) for one in status) == 4


def test_damage_that_no_other_replica_can_repair_is_left_and_reported(cluster: BrokerCluster, admin: Admin) -> None:
    fill(cluster, admin, "single", {0: (2,)})
    klamm = KlammCommand(cluster.bootstrap)
    struck = segments(cluster, 2, "single")[1]
    sound = struck.read_bytes()
    flip(struck, random.Random(2))
    damaged = struck.read_bytes()
    told = klamm("log", "scrub", "single:0")
    assert told.status == 1, told
    assert "no other replica is in sync" in told.out
    assert struck.name in told.out
    assert struck.read_bytes() == damaged
    wait_until(lambda: cluster.metric(2, "klamm_broker_log_scrub_damaged_segments") == 1, cluster.logs)
    doctor = klamm("doctor", "--json")
    assert doctor.status == 1
    assert any("1 damaged segment not repaired, of single-0" in one["text"] for one in doctor.document), doctor

    cluster.kill(2)
    cluster.restore(admin)
    wait_until(lambda: damaged_segments(cluster, 2) == 1, cluster.logs)
    struck.write_bytes(sound)
    klamm.ok("log", "scrub", "single")
    wait_until(lambda: cluster.metric(2, "klamm_broker_log_scrub_damaged_segments") == 0, cluster.logs)


def test_scrubbing_an_unknown_topic_or_partition_is_refused(cluster: BrokerCluster) -> None:
    klamm = KlammCommand(cluster.bootstrap)
    klamm.refused(1, "log", "scrub", "nothing")
    klamm.refused(1, "log", "scrub", "nothing", "--dry-run")
    klamm.refused(2, "log", "scrub", "--status", "--dry-run")
    klamm.refused(2, "log", "scrub", "orders:x")
