"""The profile secure: a client that has the password works as before, and a stranger gets nothing, not even a name."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from docker import DockerClient

from tests.compose.compose_cluster import BOOTSTRAP, SERVICES, ComposeCluster
from tests.support.reading import read_as_kafka_group
from tests.support.violation import verdict
from tests.support.waiting import patience

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

BROKER = 1
RECORDS = 1_000
TOPIC = "payroll-of-everybody"
KAFKA = "localhost:9092,localhost:9102,localhost:9112"
SECURED = {node: f"secure-{name}" for node, name in SERVICES.items()}
HOST_PORTS = (9092, 9102, 9112, *range(9094, 9102))


@pytest.fixture(scope="module")
def cluster(engine: DockerClient, base_image: str) -> Iterator[ComposeCluster]:
    cluster = ComposeCluster(engine, "klamm-secure-test", base_image, profile="secure", services=SECURED)
    try:
        begin_s = time.monotonic()
        cluster.start()
        print(f"\n{len(SECURED)} secured containers healthy after {time.monotonic() - begin_s:.1f} s")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def known(cluster: ComposeCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the host's clients need: ca.pem and client.properties."""
    directory = tmp_path_factory.mktemp("secure")
    (directory / "ca.pem").write_text(cluster.exec(BROKER, "cat /security/ca.pem") + "\n")
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": cluster.exec(BROKER, "cat /security/admin.password"),
    }
    (directory / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return directory


@pytest.fixture(scope="module")
def librdkafka(cluster: ComposeCluster, known: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": KAFKA,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(known / "ca.pem"),
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "admin",
        "sasl.password": cluster.exec(BROKER, "cat /security/admin.password"),
        "log_level": "0",  # It tries again without end, and tells each time.
    }


def klamm(*arguments: str, config: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "klamm", *arguments, "--bootstrap", BOOTSTRAP]
    command += ["--command-config", str(config)] if config else []
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=patience(), check=False)


def test_clients_with_the_password_produce_and_consume(
    cluster: ComposeCluster, known: Path, librdkafka: dict[str, str]
) -> None:
    config = known / "client.properties"
    assert klamm("topics", "create", TOPIC, "--partitions", "3", config=config).returncode == 0
    lines = "".join(f"{number}\n" for number in range(RECORDS))
    assert klamm("produce", TOPIC, config=config, stdin=lines).returncode == 0
    cluster.exec(BROKER, f"seq {RECORDS} {2 * RECORDS - 1} | klamm produce {TOPIC}")
    producer = Producer(librdkafka)
    for number in range(2 * RECORDS, 3 * RECORDS):
        producer.produce(TOPIC, str(number).encode())
    assert producer.flush(patience()) == 0

    everything = list(range(3 * RECORDS))
    found = klamm("consume", TOPIC, "--from", "beginning", "--exit", config=config).stdout
    with verdict():
        assert sorted(map(int, found.split())) == everything
    messages = read_as_kafka_group(librdkafka, "outside", TOPIC)
    with verdict():
        assert sorted(int(message.value()) for message in messages) == everything


def test_a_client_without_the_right_password_gets_no_data(known: Path, librdkafka: dict[str, str]) -> None:
    """A client without a password, or with a wrong one, gets no data. The certificates are public."""
    trusting = {name: librdkafka[name] for name in ("bootstrap.servers", "ssl.ca.location", "log_level")}
    guessed = {**librdkafka, "sasl.password": "guessed"}
    for settings in (guessed, {**trusting, "security.protocol": "SSL"}, {"bootstrap.servers": KAFKA, "log_level": "0"}):
        with pytest.raises(KafkaException):
            AdminClient(settings).list_topics(timeout=10)

    stranger = known / "stranger.properties"
    for lines in (
        "security.protocol=SSL\n",
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=admin\nsasl.password=guessed\n",
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=nobody\nsasl.password=guessed\n",
    ):
        stranger.write_text(f"{lines}ssl.truststore.location={known / 'ca.pem'}\n")
        for command in (("topics", "list"), ("cluster", "status"), ("groups", "list"), ("consume", TOPIC, "--exit")):
            asked = klamm(*command, config=stranger)
            assert asked.returncode != 0
            assert TOPIC not in asked.stdout + asked.stderr


@pytest.mark.usefixtures("cluster")
def test_no_port_of_the_host_answers_in_plain_text() -> None:
    """No port of the host shows records or metrics in plain text. A port that speaks HTTP or Kafka's protocol does so
    only over TLS."""
    for port in HOST_PORTS:
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=5)
        with socket.create_connection(("localhost", port), timeout=5) as plain:
            # ApiVersions 0 of a Kafka client.
            plain.sendall(bytes.fromhex("0000000e0012000000000001000473706965"))
            try:
                said = plain.recv(1_024)
            except OSError:
                said = b""
        assert TOPIC.encode() not in said
        assert said[:1] in (b"", b"\x15"), "a TLS alert at the most"


def test_the_metrics_port_is_reachable_only_inside_its_container(cluster: ComposeCluster) -> None:
    assert "9404/tcp" not in cluster.container(BROKER).attrs["NetworkSettings"]["Ports"]
    for host, answers in (("127.0.0.1", "yes"), ("secure-broker-1", "no")):
        dial = f"import socket; socket.create_connection(('{host}', 9404), 5)"
        said = cluster.exec(BROKER, f'python3 -c "{dial}" 2> /dev/null && echo yes || echo no')
        assert said == answers


def test_a_broker_cannot_read_the_ca_key_and_its_config_shows_no_password(cluster: ComposeCluster) -> None:
    assert cluster.exec(BROKER, "cat /security/ca.key > /dev/null 2>&1 || echo refused") == "refused"
    assert cluster.exec(BROKER, "stat -c %a /security/secure-broker-1.pem /security/admin.password") == "600\n600"
    shown = cluster.exec(BROKER, "klamm-broker --show-config")
    assert cluster.exec(BROKER, "cat /security/admin.password") not in shown
