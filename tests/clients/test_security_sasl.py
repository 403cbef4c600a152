"""Tests real clients that log in by password over TLS, and their errors for a wrong password.

Tokens are in `test_security_matrix.py`, which compares every way to log in with Apache Kafka.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from tests.support import java_programs
from tests.support.aiokafka_loop import run_aiokafka
from tests.support.klamm_process import running_cluster
from tests.support.sasl_cluster import PASSWORD, USER, SaslCluster

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
TIMEOUT_S = 120
LOGIN = "logs in by SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN"
VALUES = [b"%d" % number for number in range(100)]
MODULES = {
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "PLAIN": "plain.PlainLoginModule",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslCluster]:
    """All clients come from one address: failures of other clients are no reason to let them wait."""
    made = SaslCluster(
        tmp_path_factory.mktemp("sasl"),
        connections_max_reauth_ms="5000",
        connection_failed_authentication_delay_ms="0",
    )
    with running_cluster(made.directory, made.settings, port=made.grpc) as made.process:
        made.set_password(USER, PASSWORD)
        yield made


def java_settings(cluster: SaslCluster, mechanism: str, password: str, directory: Path) -> str:
    """A file for Kafka's tools."""
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    lines = [
        "security.protocol=SASL_SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={cluster.server.truststore}",
        f"sasl.mechanism={mechanism}",
        f'sasl.jaas.config={module} required username="{USER}" password="{password}";',
        "request.timeout.ms=10000",
        "default.api.timeout.ms=20000",
        "",
    ]
    path = directory / "client.properties"
    path.write_text("\n".join(lines))
    return str(path)


def tool(name: str, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = java_programs.command(f"org.apache.kafka.tools.{name}", *arguments)
    return subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.behaviour("Java", LOGIN)
@pytest.mark.parametrize("mechanism", MODULES)
def test_java_produces_and_consumes_after_a_sasl_login(cluster: SaslCluster, mechanism: str, tmp_path: Path) -> None:
    topic = f"java-{mechanism}"
    at = ["--bootstrap-server", cluster.address("SASL_SSL")]
    config = java_settings(cluster, mechanism, PASSWORD, tmp_path)
    given = b"".join(value + b"\n" for value in VALUES)
    produced = tool("ConsoleProducer", *at, "--command-config", config, "--topic", topic, given=given)
    assert produced.returncode == 0, produced.stderr
    end = ["--from-beginning", "--max-messages", str(len(VALUES)), "--timeout-ms", "30000", "--group", topic]
    read = tool("consumer.ConsoleConsumer", *at, "--command-config", config, "--topic", topic, *end)
    assert read.stdout.split() == VALUES, read.stderr


@pytest.mark.behaviour("Java", LOGIN)
@pytest.mark.parametrize("mechanism", MODULES)
def test_java_with_a_wrong_password_gets_an_authentication_error(
    cluster: SaslCluster, mechanism: str, tmp_path: Path
) -> None:
    config = java_settings(cluster, mechanism, "wrong", tmp_path)
    listed = tool(
        "TopicCommand", "--bootstrap-server", cluster.address("SASL_SSL"), "--command-config", config, "--list"
    )
    assert listed.returncode == 1
    told = listed.stdout + listed.stderr
    assert b"SaslAuthenticationException" in told
    assert f"invalid credentials with SASL mechanism {mechanism}".encode() in told


@pytest.mark.behaviour("kafka-python", LOGIN)
@pytest.mark.parametrize("mechanism", MODULES)
def test_kafka_python_produces_and_consumes_after_a_sasl_login(cluster: SaslCluster, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism}"
    settings = {
        "bootstrap_servers": cluster.address("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(cluster.server.truststore),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    got = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert got == VALUES


@pytest.mark.behaviour("confluent-kafka", LOGIN)
@pytest.mark.parametrize("mechanism", MODULES)
def test_confluent_logs_in_by_sasl_and_is_refused_with_a_wrong_password(cluster: SaslCluster, mechanism: str) -> None:
    topic, settings = f"confluent-{mechanism}", cluster.client(mechanism)
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got = [one.value() for one in consumer.consume(len(VALUES), TIMEOUT_S)]
    consumer.close()
    assert got == VALUES
    with pytest.raises(KafkaException):
        AdminClient(cluster.client(mechanism, "wrong")).list_topics(timeout=5)


@pytest.mark.behaviour("kcat", LOGIN)
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat not found: make test and make clients install it")
def test_kcat_produces_and_consumes_after_a_sasl_login(cluster: SaslCluster) -> None:
    """Logs in by PLAIN: kcat's librdkafka repeats another nonce than the server's in SCRAM, which Kafka has refused
    since CVE-2024-56128 too."""
    mechanism = "PLAIN"
    options = [f"-X{name}={text}" for name, text in cluster.client(mechanism).items()]
    given = b"".join(value + b"\n" for value in VALUES)
    subprocess.run(["kcat", *options, "-t", f"kcat-{mechanism}", "-P"], input=given, check=True, timeout=TIMEOUT_S)
    read = ["kcat", *options, "-t", f"kcat-{mechanism}", "-C", "-o", "beginning", "-e", "-q"]
    assert subprocess.run(read, check=True, timeout=TIMEOUT_S, capture_output=True).stdout == given


@pytest.mark.behaviour("aiokafka", LOGIN)
@pytest.mark.parametrize("mechanism", MODULES)
def test_aiokafka_logs_in_by_sasl_and_is_refused_with_a_wrong_password(cluster: SaslCluster, mechanism: str) -> None:
    def settings(password: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": cluster.address("SASL_SSL"),
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(cluster.server.truststore)),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": password,
        }

    async def scenario() -> list[bytes | None]:
        topic = f"aiokafka-{mechanism}"
        async with AIOKafkaProducer(**settings(PASSWORD)) as producer:
            for value in VALUES:
                await producer.send(topic, value)
        refused = AIOKafkaProducer(**settings("wrong"))
        with pytest.raises(AioKafkaError):
            await refused.start()
        await refused.stop()
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings(PASSWORD)) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert run_aiokafka(scenario(), TIMEOUT_S) == VALUES
