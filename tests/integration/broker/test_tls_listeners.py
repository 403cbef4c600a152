"""Tests Kafka clients at TLS listeners: with and without a client certificate, with wrong ones, at wrong ports."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.support import certificates
from tests.support.klamm_process import running_cluster
from tests.support.tls_cluster import HOST, TlsCluster
from tests.support.waiting import patience, wait_until

Settings = Mapping[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    made = TlsCluster(tmp_path_factory.mktemp("tls"))
    with running_cluster(made.directory, made.settings, port=made.grpc) as made.process:
        yield made


@pytest.mark.parametrize("client", [TlsCluster.by_tls, TlsCluster.by_certificate])
def test_a_kafka_client_uses_transactions_and_groups_over_tls(
    cluster: TlsCluster, client: Callable[[TlsCluster], dict[str, str]]
) -> None:
    settings = client(cluster)
    topic = client.__name__
    producer = Producer({**settings, "transactional.id": topic})
    producer.init_transactions(patience())
    producer.begin_transaction()
    for number in range(1000):
        producer.produce(topic, b"%d" % number)
    producer.commit_transaction(patience())
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    wait_until(lambda: values.extend(one.value() for one in consumer.consume(1000, 1)) or len(values) >= 1000)
    assert values == [b"%d" % number for number in range(1000)]
    consumer.commit(asynchronous=False)
    consumer.close()
    told = AdminClient(settings).list_topics(timeout=patience())
    assert [(broker.host, broker.port) for broker in told.brokers.values()] == [
        (HOST, int(settings["bootstrap.servers"][10:]))
    ]


def complaint(settings: Settings) -> str:
    """Connects with librdkafka, which must fail. Returns its error."""
    told: list[str] = []
    client = AdminClient({**settings, "error_cb": lambda error: told.append(str(error))})

    def heard() -> str:
        client.poll(0.1)
        return "; ".join(told)

    wait_until(heard)
    with pytest.raises(KafkaException) as caught:
        client.list_topics(timeout=1)
    assert caught.value.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
    return heard()


def test_clients_without_a_trusted_certificate_or_trust_in_the_server_cannot_connect(cluster: TlsCluster) -> None:
    complaint(cluster.client(port=cluster.mutual))
    complaint(cluster.client(signed="eve", of="Foreign CA", port=cluster.mutual))
    foreign = certificates.write_stores(
        cluster.directory / "trusts-foreign", certificates.client(), trusts=certificates.ca("Foreign CA")
    )
    assert "certificate verify failed" in complaint({**cluster.client(), "ssl.ca.location": str(foreign.truststore)})
    for reason in ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED", "UNKNOWN_CA"):
        assert reason in cluster.log()


def test_the_log_names_plain_clients_on_a_tls_port_and_tls_clients_on_a_plain_port(cluster: TlsCluster) -> None:
    complaint({"bootstrap.servers": f"{HOST}:{cluster.tls}"})
    complaint(cluster.client(port=cluster.plain))
    for told in (
        rf"a client without TLS from \S+ connected to the Kafka listener {HOST}:{cluster.tls}: the listener accepts"
        r" TLS only",
        rf"a TLS client from \S+ connected to the Kafka listener \S+:{cluster.plain}: .* without TLS",
    ):
        wait_until(lambda told=told: re.search(told, cluster.log()))


def test_silent_connections_are_closed_and_other_clients_are_served(cluster: TlsCluster) -> None:
    silent = [socket.create_connection((HOST, cluster.hasty)) for _ in range(40)]
    assert AdminClient(cluster.client(port=cluster.hasty)).list_topics(timeout=patience()).brokers
    for one in silent:
        one.settimeout(patience())
        assert one.recv(1) == b""
        one.close()


@pytest.mark.parametrize("is_cold", [False, True], ids=["warm", "cold"])
def test_fetches_of_64_mib_over_tls_return_all_records(cluster: TlsCluster, is_cold: bool) -> None:
    """The test reads 64 MiB of records in fetches of maximum size."""
    topic = f"large-{is_cold}".lower()
    admin = AdminClient(cluster.client())
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(patience())
    values = [number.to_bytes(4, "big") * 225_000 for number in range(75)]
    failed: list[object] = []
    producer = Producer(cluster.client())
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(patience()) == 0
    assert not failed
    if is_cold:
        _evict(cluster.directory / "broker" / f"{topic}-0")
    size = 64 * 1024 * 1024
    limits = {"fetch.max.bytes": size, "max.partition.fetch.bytes": size}
    consumer = Consumer(
        {
            **cluster.client(),
            "group.id": topic,
            "fetch.min.bytes": "10000000",
            "receive.message.max.bytes": 2 * size,
            **limits,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[bytes | None] = []
    wait_until(lambda: got.extend(one.value() for one in consumer.consume(75, 1)) or len(got) >= 75)
    consumer.close()
    assert got == values


def _evict(partition: pathlib.Path) -> None:
    """Removes the partition's records from the page cache."""
    for path in partition.glob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat not found: make test installs it")
def test_kcat_writes_and_reads_over_mutual_tls(cluster: TlsCluster) -> None:
    options = [f"-X{name}={text}" for name, text in cluster.by_certificate().items() if name != "bootstrap.servers"]
    command = ["kcat", "-b", f"{HOST}:{cluster.mutual}", *options, "-t", "by-kcat"]
    subprocess.run([*command, "-P"], input=b"one\ntwo\n", check=True, timeout=patience())
    read = [*command, "-C", "-o", "beginning", "-e", "-q"]
    assert subprocess.run(read, check=True, timeout=patience(), capture_output=True).stdout == b"one\ntwo\n"


def test_described_broker_configs_show_client_auth_per_listener_and_hide_keys(cluster: TlsCluster) -> None:
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient(cluster.client())
    found = admin.describe_configs([resource])[resource].result(patience())
    assert found["ssl.client.auth"].value == "none"
    assert found["listener.name.mutual.ssl.client.auth"].value == "required"
    assert found["listener.name.mutual.ssl.client.auth"].is_read_only
    assert found["ssl.keystore.key"].is_sensitive
    assert found["ssl.keystore.key"].value is None
