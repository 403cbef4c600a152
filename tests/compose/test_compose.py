"""The cluster that `docker compose up` runs: what its users do first, and what happens to containers."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, Producer

from tests.chaos.klammchaos.partition_workload import run_each
from tests.compose.compose_cluster import BOOTSTRAP, SERVICES, SMALL_SERVICES, ComposeCluster
from tests.compose.compose_faults import COMPOSE_FAULTS
from tests.compose.group_reader import GroupReader
from tests.support import seeds

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

BROKER = 1
RECORDS = 1_000
HEALTHY_S = 60
SEED = seeds.run_seed()


def _klamm(*arguments: str, stdin: str = "") -> str:
    """What the command prints, on the host."""
    command = [sys.executable, "-m", "klamm", *arguments, "--bootstrap", BOOTSTRAP]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def test_it_is_healthy_within_a_minute(cluster: ComposeCluster) -> None:
    begin_s = time.monotonic()
    cluster.start()
    took_s = time.monotonic() - begin_s
    print(f"\n{len(SERVICES)} containers healthy after {took_s:.1f} s, memory: {cluster.memory()}")
    assert took_s < HEALTHY_S


def test_the_host_and_containers_produce_and_consume(cluster: ComposeCluster) -> None:
    _klamm("topics", "create", "orders", "--partitions", "3")
    lines = "".join(f"{number}\n" for number in range(RECORDS))
    _klamm("produce", "orders", stdin=lines)
    cluster.exec(BROKER, f"seq {RECORDS} {2 * RECORDS - 1} | klamm produce orders")
    everything = sorted(range(2 * RECORDS))
    assert sorted(map(int, _klamm("consume", "orders", "--from", "beginning", "--exit").split())) == everything
    inside = cluster.exec(BROKER, "klamm consume orders --group inside --from beginning --exit")
    assert sorted(map(int, inside.split())) == everything


def test_kafka_clients_on_the_host_do_too(cluster: ComposeCluster) -> None:
    producer = Producer({"bootstrap.servers": "localhost:9092"})
    for number in range(RECORDS):
        producer.produce("orders", str(2 * RECORDS + number).encode())
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": "localhost:9102", "group.id": "outside", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    values: list[int] = []
    until_s = time.monotonic() + 60
    while len(values) < 3 * RECORDS and time.monotonic() < until_s:
        values += [int(message.value()) for message in consumer.consume(500, 1.0)]
    consumer.close()
    assert sorted(values) == list(range(3 * RECORDS))


def test_its_settings_are_those_of_the_file_and_nobody_is_root(cluster: ComposeCluster) -> None:
    shown = cluster.exec(BROKER, "klamm-broker --show-config").splitlines()
    assert "min.insync.replicas=2 (environment)" in shown
    assert cluster.exec(BROKER, "id -u") == "10001"
    refusal = cluster.exec(BROKER, "KLAMM_MIN_INSYNC_REPLICA=1 klamm-broker --show-config 2>&1 || true")
    assert refusal.endswith("KLAMM_MIN_INSYNC_REPLICA; did you mean KLAMM_MIN_INSYNC_REPLICAS?")


def test_everything_is_there_after_down_and_up(cluster: ComposeCluster) -> None:
    begin_s = time.monotonic()
    cluster.down()
    down_s = time.monotonic() - begin_s
    cluster.start()
    print(f"\ndown in {down_s:.1f} s, healthy again {time.monotonic() - begin_s - down_s:.1f} s later")
    found = _klamm("consume", "orders", "--from", "beginning", "--exit").split()
    assert sorted(map(int, found)) == list(range(3 * RECORDS))
    seen = cluster.exec(BROKER, "klamm consume orders --group inside --exit").split()
    assert sorted(map(int, seen)) == list(range(2 * RECORDS, 3 * RECORDS))


def test_nothing_is_violated_whatever_happens_to_containers(cluster: ComposeCluster) -> None:
    print(f"\nTEST_SEED={SEED}")
    reader = GroupReader(BOOTSTRAP)
    run_each(cluster, COMPOSE_FAULTS, seed=SEED, readers=[reader])
    committed = sum(reader.committed.values())
    print(f"the group committed {committed} records; memory after the load: {cluster.used_memory}")


def test_one_of_each_is_a_cluster_too(base_image: str, cluster: ComposeCluster) -> None:
    cluster.close()
    small = ComposeCluster(cluster.engine, cluster.project, base_image, profile="small", services=SMALL_SERVICES)
    try:
        begin_s = time.monotonic()
        small.start()
        print(f"\n{len(SMALL_SERVICES)} containers healthy after {time.monotonic() - begin_s:.1f} s")
        small.exec(BROKER, "klamm topics create t && seq 9 | klamm produce t")
        found = small.exec(BROKER, "klamm consume t --group g --from beginning --exit").split()
        assert sorted(map(int, found)) == list(range(1, 10))
    finally:
        small.close()
