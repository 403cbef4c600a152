"""Clients leave while the broker reads records for them that only the disk has."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm import Admin, NewTopic, Producer, TopicPartition
from klamm_broker.kafka.api import ApiKey
from klamm_broker.server import COLD_READ_THREADS
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.reading import read_all
from tests.support.waiting import patience, wait_until

TOPIC, RECORDS = "archive", 10
CLIENTS = 20
FETCH = {
    "replica_id": -1,
    "max_wait": 30_000,
    "min_bytes": 1,
    "max_bytes": 1_000_000,
    "isolation_level": 0,
    "topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000}]}],
}
FETCH_VERSION = 4


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Returns a path. While a file exists there, the cluster's disk is slow."""
    return tmp_path / "gate"


@pytest.fixture
def cluster(tmp_path: Path, gate: Path) -> Iterator[KlammProcess]:
    program = (sys.executable, "-m", "tests.support.slow_disk", str(gate))
    with running_cluster(tmp_path, program=program) as running:
        with Admin(bootstrap_servers=running.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        with Producer(bootstrap_servers=running.bootstrap) as producer:
            for number in range(RECORDS):
                producer.send(TOPIC, b"%d" % number)
            producer.flush(patience())
        yield running
        gate.unlink(missing_ok=True)


def open_segments(cluster: KlammProcess) -> int:
    """Returns how many descriptors of the topic's segments the server has open."""
    count = 0
    for link in Path(f"/proc/{cluster.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            path = link.readlink()
            count += path.parent.name == f"{TOPIC}-0" and path.suffix == ".log"
    return count


def wait_for_open_segments(cluster: KlammProcess, count: int) -> None:
    wait_until(lambda: open_segments(cluster) == count, lambda: f"{open_segments(cluster)} and not {count} are open")


def test_clients_that_leave_during_cold_reads_leave_no_descriptor_open(cluster: KlammProcess, gate: Path) -> None:
    """A few threads read for all clients, so the reads of most of them have not begun when the clients leave."""
    before = open_segments(cluster)
    gate.touch()
    with contextlib.ExitStack() as clients:
        for _ in range(CLIENTS):
            clients.enter_context(KafkaWire(cluster.kafka_bootstrap)).send(ApiKey.FETCH, FETCH_VERSION, FETCH)
        wait_for_open_segments(cluster, before + CLIENTS)

    wait_for_open_segments(cluster, before + COLD_READ_THREADS)
    gate.unlink()

    wait_for_open_segments(cluster, before)
    assert len(read_all(cluster.bootstrap, [TopicPartition(TOPIC, 0)])) == RECORDS
