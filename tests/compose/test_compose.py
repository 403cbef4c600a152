"""Tests the cluster of `docker compose up` with the first commands of its users, and with faults of containers."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from confluent_kafka import Producer

from tests.chaos.klammchaos.partition_workload import run_each
from tests.compose.compose_cluster import BOOTSTRAP, SERVICES, SMALL_SERVICES, ComposeCluster
from tests.compose.compose_faults import COMPOSE_FAULTS
from tests.compose.group_reader import GroupReader
from tests.support import seeds
from tests.support.reading import read_as_kafka_group
from tests.support.violation import verdict
from tests.support.waiting import patience

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

BROKER = 1
RECORDS = 1_000
SEED = seeds.run_seed()


def _klamm(*arguments: str, stdin: str = "") -> str:
    """Returns the output of the command on the host."""
    command = [sys.executable, "-m", "klamm", *arguments, "--bootstrap", BOOTSTRAP]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def _fill(cluster: ComposeCluster, topic: str) -> list[int]:
    """Produces numbers to a new topic, from the host and from a container. Returns all of them."""
    _klamm("topics", "create", topic, "--partitions", "3")
    _klamm("produce", topic, stdin="".join(f"{number}\n" for number in range(RECORDS)))
    cluster.exec(BROKER, f"seq {RECORDS} {2 * RECORDS - 1} | klamm produce {topic}")
    return list(range(2 * RECORDS))


def _fill_as_kafka_client(topic: str) -> list[int]:
    """Produces more numbers with a Kafka client on the host. Returns them."""
    numbers = list(range(2 * RECORDS, 3 * RECORDS))
    producer = Producer({"bootstrap.servers": "localhost:9092"})
    for number in numbers:
        producer.produce(topic, str(number).encode())
    assert producer.flush(patience()) == 0
    return numbers


def _check_read(printed: str, expected: list[int]) -> None:
    """Raises Violation unless a command has printed these numbers, each of them once."""
    with verdict():
        assert sorted(map(int, printed.split())) == expected


def test_all_containers_are_healthy(cluster: ComposeCluster) -> None:
    assert cluster.health() == dict.fromkeys(SERVICES.values(), "healthy")
    print(f"\n{len(SERVICES)} containers, memory: {cluster.memory()}")


def test_the_image_has_the_compiled_core_and_no_compiler(cluster: ComposeCluster) -> None:
    script = "import klamm.core; print(klamm.core.core.__name__)"
    assert cluster.exec(BROKER, f"KLAMM_CORE=compiled python3 -c '{script}'") == "klamm._core"
    assert cluster.exec(BROKER, "command -v gcc || echo none") == "none"


def test_the_host_and_containers_produce_and_consume(cluster: ComposeCluster) -> None:
    expected = _fill(cluster, "orders")
    _check_read(_klamm("consume", "orders", "--from", "beginning", "--exit"), expected)
    inside = cluster.exec(BROKER, "klamm consume orders --group inside --from beginning --exit")
    _check_read(inside, expected)


def test_kafka_clients_on_the_host_produce_and_consume(cluster: ComposeCluster) -> None:
    expected = _fill(cluster, "payments") + _fill_as_kafka_client("payments")
    messages = read_as_kafka_group({"bootstrap.servers": "localhost:9102"}, "outside", "payments")
    with verdict():
        assert sorted(int(message.value()) for message in messages) == expected


def test_a_container_has_the_settings_of_the_file_and_does_not_run_as_root(cluster: ComposeCluster) -> None:
    shown = cluster.exec(BROKER, "klamm-broker --show-config").splitlines()
    assert "min.insync.replicas=2 (environment)" in shown
    assert cluster.exec(BROKER, "id -u") == "10001"
    refusal = cluster.exec(BROKER, "KLAMM_MIN_INSYNC_REPLICA=1 klamm-broker --show-config 2>&1 || true")
    assert refusal.endswith("KLAMM_MIN_INSYNC_REPLICA; did you mean KLAMM_MIN_INSYNC_REPLICAS?")


def test_records_and_offsets_survive_compose_down_and_up(cluster: ComposeCluster) -> None:
    first = _fill(cluster, "kept")
    _check_read(cluster.exec(BROKER, "klamm consume kept --group inside --from beginning --exit"), first)
    later = _fill_as_kafka_client("kept")
    begin_s = time.monotonic()
    cluster.down()
    down_s = time.monotonic() - begin_s
    cluster.start()
    print(f"\ndown in {down_s:.1f} s, healthy again {time.monotonic() - begin_s - down_s:.1f} s later")
    _check_read(_klamm("consume", "kept", "--from", "beginning", "--exit"), first + later)
    _check_read(cluster.exec(BROKER, "klamm consume kept --group inside --exit"), later)


def test_faults_of_containers_violate_no_guarantee(cluster: ComposeCluster) -> None:
    print(f"\nTEST_SEED={SEED}")
    reader = GroupReader(BOOTSTRAP)
    run_each(cluster, COMPOSE_FAULTS, seed=SEED, readers=[reader])
    committed = sum(reader.committed.values())
    print(f"the group committed {committed} records; memory after the load: {cluster.used_memory}")


def test_the_small_profile_with_one_server_of_each_kind_works(base_image: str, cluster: ComposeCluster) -> None:
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
