"""Tests Kafka clients that dial a port of another protocol. They report that the connection was closed, and do no
harm."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.ports import free_port

TIMEOUT_S = 60
PATIENCE_S = 2


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, metrics_port: int) -> Iterator[KlammProcess]:
    settings = {"metrics.port": str(metrics_port)}
    with running_cluster(tmp_path_factory.mktemp("wrong-protocol"), settings) as running:
        yield running


def lines(cluster: KlammProcess, text: str) -> list[str]:
    return [line for line in Path(cluster.log_path).read_text().splitlines() if text in line]


def complaints(bootstrap: str) -> list[str]:
    """Returns the errors of a client that looks for topics there."""
    told: list[str] = []
    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "error_cb": lambda error: told.append(str(error)), "log_level": 2}
    )
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=PATIENCE_S)
    while not told:
        admin.poll(PATIENCE_S)
    return told


def test_librdkafka_at_a_grpc_listener_reports_a_disconnect_and_harms_no_other_client(cluster: KlammProcess) -> None:
    told = complaints(cluster.bootstrap)
    assert any("Disconnected" in one or "brokers are down" in one for one in told), told
    assert AdminClient({"bootstrap.servers": cluster.kafka_bootstrap}).list_topics(timeout=TIMEOUT_S).brokers


def test_a_kafka_client_at_the_metrics_port_is_logged_once(cluster: KlammProcess, metrics_port: int) -> None:
    assert complaints(f"127.0.0.1:{metrics_port}")
    (line,) = lines(cluster, f"a Kafka client from 127.0.0.1 connected to the metrics port {metrics_port}")
    assert "clients dial the server's listeners" in line


def test_a_tls_client_at_a_plaintext_kafka_listener_is_logged_once(cluster: KlammProcess) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap, "security.protocol": "SSL", "log_level": 2})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=PATIENCE_S)
    (line,) = lines(cluster, "a TLS client from 127.0.0.1 connected to the Kafka listener")
    assert "security.protocol=PLAINTEXT" in line


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat not found: make test and make clients install it")
def test_kcat_at_a_grpc_listener_fails_with_a_disconnect(cluster: KlammProcess) -> None:
    command = ["kcat", "-b", cluster.bootstrap, "-L", "-m", str(PATIENCE_S)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert run.returncode == 1
    assert "Disconnected" in run.stderr or "Failed to acquire metadata" in run.stderr
