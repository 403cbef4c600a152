"""Tests a cluster whose only listener is gRPC with TLS and client certificates: our clients, commands and probes."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from klamm import Admin, Consumer, NewTopic, Producer, TopicPartition
from klamm.health import main as health
from tests.support.certificates import ca, client, replace, server, write_stores
from tests.support.cli_runner import KlammCommand
from tests.support.klamm_process import KlammProcess
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

RECORDS = 1_500
HOSTS = ("localhost", "127.0.0.1", "::1")


class TlsCluster:
    """The cluster, its files and a client's files."""

    def __init__(self, directory: Path) -> None:
        self.server = write_stores(directory / "server", server())
        self.client = write_stores(directory / "client", client())
        self.process = KlammProcess(directory)
        self.process._settings |= {
            "listeners": f"GRPC_SSL://localhost:{self.process.port}",
            "ssl.client.auth": "required",
            "ssl.reload.interval.ms": "100",
            **self.server.settings(),
        }
        self.bootstrap = f"localhost:{self.process.port}"
        self.settings = {"security.protocol": "SSL", "ssl.reload.interval.ms": "100", **self.client.settings()}
        self.properties = directory / "client.properties"
        self.properties.write_text("".join(f"{name}={text}\n" for name, text in self.settings.items()))

    def shown(self) -> bytes:
        """Returns the certificate that the server shows to new clients."""
        context = ssl.create_default_context(cafile=str(self.server.truststore))
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("localhost", self.process.port), 30)
        with context.wrap_socket(plain, server_hostname="localhost") as secured:
            return secured.getpeercert(binary_form=True) or b""

    def of(self, **settings: str) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, **self.settings, **settings}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    made = TlsCluster(tmp_path_factory.mktemp("tls"))
    made.process.start()
    try:
        yield made
    finally:
        if made.process.started:
            made.process.kill()


def test_no_record_is_lost_or_duplicated_while_servers_and_clients_get_new_certificates(cluster: TlsCluster) -> None:
    with Admin(cluster.of()) as admin:
        admin.create_topics([NewTopic("t", 1)])
    renewed = threading.Event()

    def renew() -> None:
        replace(cluster.server.keystore, ca().for_server("server", HOSTS, now=_now()).keystore_pem)
        replace(cluster.client.keystore, ca().for_client("client", now=_now()).keystore_pem)
        renewed.set()

    shown = cluster.shown()
    with Producer(cluster.of(**{"linger.ms": "0"})) as producer:
        first = producer.send("t", b"0").result(patience())
        assert first.offset == 0
        renewing = threading.Timer(0.2, renew)
        renewing.start()
        sent = 1
        while not renewed.is_set() or sent < RECORDS:
            producer.send("t", b"%d" % sent).result(patience())
            sent += 1
        renewing.join()
        wait_until(lambda: cluster.shown() != shown)
        for _ in range(100):
            producer.send("t", b"%d" % sent).result(patience())
            sent += 1

    with Consumer(cluster.of(**{"auto.offset.reset": "earliest"})) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        values: list[int] = []
        while consumer.position(TopicPartition("t", 0)) < sent:
            values += [int(record.value) for records in consumer.poll(30_000).values() for record in records]
    with verdict():
        assert values == list(range(sent))


def test_simultaneous_tls_connections_are_all_served(cluster: TlsCluster) -> None:
    """gRPC asks for certificates in several threads. This used to crash the process."""
    with ThreadPoolExecutor(16) as clients:
        assert len(set(clients.map(lambda _: cluster.shown(), range(1_200)))) == 1
    assert cluster.process.running


def test_commands_read_their_client_settings_from_the_command_config_file(cluster: TlsCluster, tmp_path: Path) -> None:
    klamm = KlammCommand(cluster.bootstrap)
    with_file = ("--command-config", cluster.properties)
    klamm.ok("topics", "create", "by-command", *with_file)
    assert "by-command" in klamm.ok("topics", "list", *with_file).out
    found = klamm.ok("doctor", "--json", *with_file).document
    by_check = {each["check"]: each["text"] for each in found if each["level"] == "ok"}
    assert by_check["addresses"] == "3 of 3 advertised addresses resolve and connect"
    assert by_check["versions"].startswith("3 servers")

    assert "it speaks TLS, which is security.protocol=SSL or SASL_SSL; a file with that" in klamm("topics", "list").err
    nobody = tmp_path / "nobody.properties"
    nobody.write_text(f"security.protocol=SSL\nssl.truststore.location={cluster.client.truststore}\n")
    ended = klamm("topics", "list", "--command-config", nobody)
    assert ended.status != 0
    assert "it requires a certificate of its clients (ssl.keystore.location)" in ended.err


def test_the_health_probe_uses_the_client_settings_of_its_config_file(
    cluster: TlsCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert health([cluster.bootstrap, "--config", str(cluster.properties)]) == 0
    assert capsys.readouterr().out == "SERVING\n"
    assert health([cluster.bootstrap]) == 1


def _now() -> datetime:
    return datetime.now(UTC)
