"""Tests real clients at listeners with TLS, with and without certificates of their own, and the errors of clients
without a certificate."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tests.support import java_programs
from tests.support.aiokafka_loop import run_aiokafka
from tests.support.klamm_process import running_cluster
from tests.support.tls_cluster import TlsCluster

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]
TIMEOUT_S = 120
TLS = "TLS, by the server's certificate and by both"
VALUES = [b"%d" % number for number in range(100)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    made = TlsCluster(tmp_path_factory.mktemp("tls"))
    with running_cluster(made.directory, made.settings, port=made.grpc) as made.process:
        yield made


@pytest.fixture(params=["SSL", "mTLS"])
def settings(cluster: TlsCluster, request: pytest.FixtureRequest) -> dict[str, str]:
    return cluster.by_tls() if request.param == "SSL" else cluster.by_certificate()


@pytest.fixture
def refused(cluster: TlsCluster) -> dict[str, str]:
    """Returns the settings of a client without a certificate, at the listener that requires one."""
    return cluster.client(port=cluster.mutual)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


def context(settings: Mapping[str, str]) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=settings["ssl.ca.location"])
    if "ssl.key.location" in settings:
        made.load_cert_chain(settings["ssl.key.location"])
    return made


# Java


def java_settings(settings: Mapping[str, str], directory: Path) -> str:
    """A file for Kafka's tools."""
    lines = [
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={settings['ssl.ca.location']}",
    ]
    if "ssl.key.location" in settings:
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={settings['ssl.key.location']}"]
    path = directory / "client.properties"
    path.write_text("\n".join([*lines, "request.timeout.ms=10000", "default.api.timeout.ms=20000", ""]))
    return str(path)


def tool(name: str, *arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = java_programs.command(f"org.apache.kafka.tools.{name}", *arguments)
    return subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.behaviour("Java", TLS)
def test_java_produces_and_consumes_over_tls(settings: dict[str, str], topic: str, tmp_path: Path) -> None:
    at = ["--bootstrap-server", settings["bootstrap.servers"]]
    config = java_settings(settings, tmp_path)
    given = b"".join(value + b"\n" for value in VALUES)
    produced = tool("ConsoleProducer", *at, "--command-config", config, "--topic", topic, given=given)
    assert produced.returncode == 0, produced.stderr
    end = ["--from-beginning", "--max-messages", str(len(VALUES)), "--timeout-ms", "30000", "--group", topic]
    read = tool("consumer.ConsoleConsumer", *at, "--command-config", config, "--topic", topic, *end)
    assert read.stdout.split() == VALUES, read.stderr


@pytest.mark.behaviour("Java", TLS)
def test_java_without_a_certificate_is_refused(refused: dict[str, str], tmp_path: Path) -> None:
    at = ["--bootstrap-server", refused["bootstrap.servers"], "--command-config", java_settings(refused, tmp_path)]
    listed = tool("TopicCommand", *at, "--list")
    assert listed.returncode == 1
    assert b"SslAuthenticationException" in listed.stdout + listed.stderr


# librdkafka


@pytest.mark.behaviour("confluent-kafka", TLS)
def test_confluent_produces_and_consumes_over_tls(settings: dict[str, str], topic: str) -> None:
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got = [one.value() for one in consumer.consume(len(VALUES), TIMEOUT_S)]
    consumer.close()
    assert got == VALUES


@pytest.mark.behaviour("confluent-kafka", TLS)
def test_confluent_without_a_certificate_is_refused(refused: dict[str, str]) -> None:
    admin = AdminClient(refused)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=5)


@pytest.mark.behaviour("kcat", TLS)
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat not found: make test and make clients install it")
def test_kcat_produces_and_consumes_over_tls(settings: dict[str, str], topic: str) -> None:
    options = [f"-X{name}={text}" for name, text in settings.items()]
    given = b"".join(value + b"\n" for value in VALUES)
    subprocess.run(["kcat", *options, "-t", topic, "-P"], input=given, check=True, timeout=TIMEOUT_S)
    read = ["kcat", *options, "-t", topic, "-C", "-o", "beginning", "-e", "-q"]
    assert subprocess.run(read, check=True, timeout=TIMEOUT_S, capture_output=True).stdout == given


# aiokafka


@pytest.mark.behaviour("aiokafka", TLS)
def test_aiokafka_produces_and_consumes_over_tls(settings: dict[str, str], topic: str) -> None:
    async def scenario() -> list[bytes | None]:
        common = {
            "bootstrap_servers": settings["bootstrap.servers"],
            "security_protocol": "SSL",
            "ssl_context": context(settings),
        }
        async with AIOKafkaProducer(**common) as producer:
            for value in VALUES:
                await producer.send(topic, value)
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **common) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert run_aiokafka(scenario(), TIMEOUT_S) == VALUES


@pytest.mark.behaviour("aiokafka", TLS)
def test_aiokafka_without_a_certificate_is_refused(refused: dict[str, str]) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=refused["bootstrap.servers"], security_protocol="SSL", ssl_context=context(refused)
        )
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AioKafkaError):
        run_aiokafka(scenario(), TIMEOUT_S)


# kafka-python


def python_settings(settings: Mapping[str, str]) -> dict[str, str]:
    given = {"security_protocol": "SSL", "ssl_cafile": settings["ssl.ca.location"]}
    if "ssl.key.location" in settings:
        given |= {"ssl_certfile": settings["ssl.key.location"], "ssl_keyfile": settings["ssl.key.location"]}
    return {"bootstrap_servers": settings["bootstrap.servers"], **given}


@pytest.mark.behaviour("kafka-python", TLS)
def test_kafka_python_produces_and_consumes_over_tls(settings: dict[str, str], topic: str) -> None:
    producer = KafkaProducer(**python_settings(settings))
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **python_settings(settings)
    )
    got = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert got == VALUES


@pytest.mark.behaviour("kafka-python", TLS)
def test_kafka_python_without_a_certificate_is_refused(refused: dict[str, str]) -> None:
    with pytest.raises(KafkaError):
        KafkaProducer(**python_settings(refused), bootstrap_timeout_ms=5_000)
