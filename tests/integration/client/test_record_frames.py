"""Tests clients whose records leave gRPC for the Kafka listener beside it: every login, and wrong addresses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm import Admin, AsyncProducer, Consumer, NewTopic, Producer, TopicPartition
from klamm.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from klamm.errors import SaslAuthenticationError
from klamm_broker.kafka.api import ApiKey
from tests.support.broker_cluster import read_samples
from tests.support.certificates import client, server, write_stores
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.ports import free_port, free_ports
from tests.support.waiting import patience, wait_until

VALUE = bytes(20_000)
MANY = 500
"""The number of records that take a consumer more than one fetch."""
USER, PASSWORD = "alice", "wonder,land="


class SecuredCluster:
    """`klamm up` with a gRPC listener and a Kafka listener for each security."""

    def __init__(self, directory: Path) -> None:
        self.ports = dict(zip(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), free_ports(range(4)), strict=True))
        kafka = free_ports(range(4))
        self.metrics_port = free_port()
        self.server = write_stores(directory / "server", server())
        self.client = write_stores(directory / "client", client())
        grpc = [f"GRPC_{name}://localhost:{port}" for name, port in self.ports.items()]
        beside = [f"{name}://localhost:{port}" for name, port in zip(self.ports, kafka, strict=True)]
        self.settings = {
            "listeners": ",".join([*grpc, *beside]).replace("GRPC_PLAINTEXT", "GRPC"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "ssl.client.auth": "required",
            "security.migration.enable": "true",
            "metrics.port": str(self.metrics_port),
            **self.server.settings(),
        }

    def of(self, protocol: str, mechanism: str = "SCRAM-SHA-256", **settings: Any) -> dict[str, Any]:
        """Returns the settings of a client."""
        made = {"bootstrap.servers": f"localhost:{self.ports[protocol]}", "security.protocol": protocol, **settings}
        if protocol.endswith("SSL"):
            made |= self.client.settings()
        if protocol.startswith("SASL"):
            made |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
        return made


def framed_requests(metrics_port: int, api_key: ApiKey = ApiKey.KLAMM_PRODUCE) -> float:
    """Returns how many requests of this kind have come to the Kafka listeners."""
    samples = read_samples(metrics_port)
    return sum(
        sample.value
        for sample in samples
        if sample.labels.get("api") == api_key.name and sample.name.endswith("_total")
    )


def send_until(producer: Producer, topic: str, is_enough: Any) -> int:
    """Sends records of increasing numbers until `is_enough`. Returns their count."""
    count = 0

    def sent_more() -> bool:
        nonlocal count
        for _ in range(20):
            producer.send(topic, VALUE, key=b"%d" % count)
            count += 1
        producer.flush()
        return bool(is_enough())

    wait_until(sent_more)
    return count


def keys_of(settings: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        keys: list[bytes | None] = []
        wait_until(
            lambda: (
                keys.extend(record.key for records in consumer.poll(500).values() for record in records)
                or len(keys) >= count
            )
        )
    return keys


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    made = SecuredCluster(tmp_path_factory.mktemp("frames"))
    with running_cluster(made.server.keystore.parent, made.settings, port=made.ports["PLAINTEXT"]):
        with Admin(made.of("PLAINTEXT")) as admin:
            for mechanism in ScramMechanism:
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism), PASSWORD)]
                )
        for mechanism in ScramMechanism:
            wait_until(lambda name=mechanism.mechanism_name: _can_log_in(made.of("SASL_PLAINTEXT", name)))
        yield made


def _can_log_in(settings: dict[str, Any]) -> bool:
    """Returns whether the broker knows the user."""
    try:
        with Admin(settings) as admin:
            admin.describe_cluster()
    except SaslAuthenticationError:
        return False
    return True


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("PLAINTEXT", ""),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
        ("SASL_PLAINTEXT", "PLAIN"),
    ],
)
def test_records_leave_grpc_with_every_login(cluster: SecuredCluster, protocol: str, mechanism: str) -> None:
    topic = f"{protocol}-{mechanism}"
    settings = cluster.of(protocol, mechanism)
    before = framed_requests(cluster.metrics_port)
    with Producer(settings) as producer:
        count = send_until(producer, topic, lambda: framed_requests(cluster.metrics_port) > before)
        for number in range(count, count + MANY):
            producer.send(topic, VALUE, key=b"%d" % number)
    count += MANY
    before = framed_requests(cluster.metrics_port, ApiKey.KLAMM_FETCH)
    wait_until(
        lambda: (
            keys_of(settings, topic, count) == [b"%d" % number for number in range(count)]
            and framed_requests(cluster.metrics_port, ApiKey.KLAMM_FETCH) > before
        )
    )


def test_a_consumer_that_changes_its_partitions_all_the_time_reads_every_record(tmp_path: Path) -> None:
    """The consumer cancels, with each change, a fetch that waits for records of the other partition."""
    metrics_port = free_port()
    with running_cluster(tmp_path, {"metrics.port": str(metrics_port)}) as process:
        settings = {"bootstrap.servers": process.bootstrap}
        with Admin(settings) as admin:
            admin.create_topics([NewTopic("t", 2, 1)])
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        with Producer(settings) as producer, Consumer(settings, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            seen = 0

            def has_read_more() -> bool:
                nonlocal seen
                for tp in partitions:
                    producer.send("t", VALUE, partition=tp.partition).result(patience())
                    consumer.pause(tp)
                    seen += sum(map(len, consumer.poll(20).values()))
                    consumer.resume(tp)
                return framed_requests(metrics_port, ApiKey.KLAMM_FETCH) > 20

            wait_until(has_read_more)
            wait_until(lambda: not any(consumer.poll(100).values()))
            ends = consumer.end_offsets(partitions)
            assert {tp: consumer.position(tp) for tp in partitions} == ends


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_encrypted_records_stay_with_grpc(cluster: SecuredCluster, protocol: str) -> None:
    topic, settings = f"encrypted-{protocol}", cluster.of(protocol)
    before = framed_requests(cluster.metrics_port)
    with Producer(settings) as producer:
        for number in range(MANY):
            producer.send(topic, VALUE, key=b"%d" % number)
    assert keys_of(settings, topic, MANY) == [b"%d" % number for number in range(MANY)]
    assert framed_requests(cluster.metrics_port) == before


def test_a_restart_of_the_broker_loses_and_doubles_no_record(tmp_path: Path) -> None:
    metrics_port = free_port()
    with running_cluster(tmp_path, {"metrics.port": str(metrics_port)}) as process:
        with Producer(bootstrap_servers=process.bootstrap, linger_ms=0) as producer:
            count = send_until(producer, "t", lambda: framed_requests(metrics_port))
            futures = [producer.send("t", VALUE, key=b"%d" % (count + number)) for number in range(500)]
            process.kill()
            process.start()
            for future in futures:
                future.result(patience())
        count += len(futures)
        settings = {"bootstrap.servers": process.bootstrap}
        assert keys_of(settings, "t", count) == [b"%d" % number for number in range(count)]


@contextlib.contextmanager
def advertised_kafka(directory: Path, port: int, **settings: str) -> Iterator[KlammProcess]:
    """Yields a cluster that names `port` as its Kafka listener, where it does not listen itself."""
    process = KlammProcess(directory)
    process._settings |= {
        "listeners": f"GRPC://127.0.0.1:{process.port},KAFKA://127.0.0.1:{process.kafka_port}",
        "advertised.listeners": f"GRPC://127.0.0.1:{process.port},KAFKA://127.0.0.1:{port}",
        **settings,
    }
    process.start()
    try:
        yield process
    finally:
        process.stop()


def test_records_stay_with_grpc_if_nobody_listens_at_the_kafka_address(tmp_path: Path) -> None:
    with advertised_kafka(tmp_path, free_port()) as process, Producer(bootstrap_servers=process.bootstrap) as producer:
        futures = [producer.send("t", VALUE) for _ in range(100)]
        assert [future.result(patience()).offset for future in futures] == list(range(100))


def test_no_record_goes_to_another_cluster_that_listens_at_the_kafka_address(tmp_path: Path) -> None:
    """A tunnel may lead only the gRPC listener here, and the port of the other may belong to a cluster of this
    machine."""
    metrics_port = free_port()
    with (
        running_cluster(tmp_path / "other", {"metrics.port": str(metrics_port)}) as other,
        advertised_kafka(tmp_path / "meant", other.kafka_port) as meant,
    ):
        with Admin(bootstrap_servers=other.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 1)])
        asked = f"{ApiKey.API_VERSIONS.name}"
        with Producer(bootstrap_servers=meant.bootstrap) as producer:
            send_until(
                producer,
                "t",
                lambda: any(
                    sample.labels.get("api") == asked and sample.value for sample in read_samples(metrics_port)
                ),
            )
            assert producer.metrics()["record-error-total"] == 0
        assert framed_requests(metrics_port) == 0
        with Consumer(bootstrap_servers=other.bootstrap) as consumer:
            assert consumer.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 0}


def test_an_asyncio_producer_uses_the_kafka_listener_too(tmp_path: Path) -> None:
    metrics_port = free_port()

    async def scenario(bootstrap: str) -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            while not framed_requests(metrics_port):
                futures = [await producer.send("t", VALUE) for _ in range(20)]
                await producer.flush()
                assert all(future.done() for future in futures)

    with running_cluster(tmp_path, {"metrics.port": str(metrics_port)}) as process:
        asyncio.run(asyncio.wait_for(scenario(process.bootstrap), patience()))
