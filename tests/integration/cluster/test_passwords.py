"""Tests a cluster whose clients log in with passwords over the gRPC API, at every kind of server.

The servers authenticate each other by certificate.
"""

from __future__ import annotations

import pathlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from klamm import Admin, Consumer, Producer
from klamm.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from klamm.admin import NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from klamm.errors import AuthenticationError, BrokerError, ErrorCode, SaslAuthenticationError
from klamm.health import main as health
from tests.support import certificates
from tests.support.cli_runner import KlammCommand
from tests.support.ports import free_ports
from tests.support.server_process import ServerProcess
from tests.support.violation import verdict
from tests.support.waiting import patience, wait_until

HOST = "localhost"
TOPIC, GROUP = "orders", "billing"
ALICE, PASSWORD = "alice", "canary-s3cret"
REAUTH_MS = 5_000
RENEWALS = 2
MECHANISM = ScramMechanism.SHA_512


def allow(operation: AclOperation, resource_type: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        resource_type, name, PatternType.LITERAL, f"User:{ALICE}", "*", operation, AclPermissionType.ALLOW
    )


class PasswordCluster:
    """A controller, a broker and a coordinator, each with a listener INTERNAL for servers and CLIENTS for passwords."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.ports = dict(zip(("controller", "broker", "coordinator"), free_ports(range(3)), strict=True))
        inside = dict(zip(self.ports, free_ports(range(3)), strict=True))
        self.internal = f"{HOST}:{inside['broker']}"
        self.bootstrap = f"{HOST}:{self.ports['broker']}"
        contact = {"controller.quorum.bootstrap.servers": f"{HOST}:{inside['controller']}"}
        own: dict[str, dict[str, str]] = {
            "controller": {"metadata.log.dir": str(directory / "metadata")},
            "broker": {"log.dirs": str(directory / "log"), "offsets.topic.num.partitions": "2", **contact},
            "coordinator": {"group.initial.rebalance.delay.ms": "0", **contact},
        }
        self.processes = [self._server(kind, inside[kind], settings) for kind, settings in own.items()]

    def _server(self, kind: str, internal: int, settings: dict[str, str]) -> ServerProcess:
        stores = certificates.write_stores(self.directory / kind, certificates.server(kind))
        properties = {
            "listeners": f"INTERNAL://{HOST}:{internal},CLIENTS://{HOST}:{self.ports[kind]}",
            "listener.security.protocol.map": "INTERNAL:GRPC_SSL,CLIENTS:GRPC_SASL_SSL",
            "listener.name.internal.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "connections.max.reauth.ms": str(REAUTH_MS),
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:controller;User:broker;User:coordinator;User:admin",
            **stores.settings(),
            **settings,
        }
        return ServerProcess(f"klamm_{kind}", 1, self.directory, properties)

    def start(self) -> None:
        for process in self.processes:
            process.start()
        for process in self.processes[1:]:
            wait_until(lambda process=process: "=1 serving" in process.log_path.read_text(), self.logs)

    def admin(self) -> dict[str, str]:
        """Returns the administrator's settings.

        The administrator has a certificate, because a new cluster has no users.
        """
        stores = certificates.write_stores(self.directory / "client-admin", certificates.client("admin"))
        return {"bootstrap.servers": self.internal, "security.protocol": "SSL", **stores.settings()}

    def client(self, user: str = ALICE, password: str = PASSWORD, **settings: str) -> dict[str, str]:
        """Returns a client's settings. `settings` have underscores for dots."""
        stores = certificates.write_stores(self.directory / "client", certificates.client())
        jaas = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(stores.truststore),
            "sasl.mechanism": MECHANISM.mechanism_name,
            "sasl.jaas.config": f'{jaas} required username="{user}" password="{password}";',
            **{name.replace("_", "."): text for name, text in settings.items()},
        }

    def set_password(self, user: str, password: str) -> None:
        with Admin(self.admin()) as admin:
            alteration = UserScramCredentialUpsertion(user, ScramCredentialInfo(MECHANISM, 4096), password)
            admin.alter_user_scram_credentials([alteration])

    def logs(self) -> str:
        return "\n".join(
            f"== {process.log_path.name}\n{process.log_path.read_text()[-3000:]}" for process in self.processes
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PasswordCluster]:
    made = PasswordCluster(tmp_path_factory.mktemp("passwords"))
    try:
        made.start()
        with Admin(made.admin()) as admin:
            admin.create_topics([NewTopic(TOPIC, partition_count=1, replication_factor=1)])
            admin.create_acls(
                [
                    allow(AclOperation.ALL, ResourceType.TOPIC, TOPIC),
                    allow(AclOperation.ALL, ResourceType.GROUP, GROUP),
                    allow(AclOperation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"),
                ]
            )
        made.set_password(ALICE, PASSWORD)
        wait_until(lambda: logs_in(made.client()), made.logs)
        yield made
    finally:
        for process in made.processes:
            if process.running:
                process.end(signal.SIGKILL)


def logs_in(settings: dict[str, str]) -> bool:
    """Returns True if all kinds of servers let the client in. Each server learns new users after a moment."""
    try:
        with Admin(settings) as admin:
            admin.list_topics()
            admin.describe_acls()
            admin.list_groups()
    except AuthenticationError:
        return False
    return True


def use_producer(settings: dict[str, str]) -> None:
    with Producer(settings) as producer:
        producer.send(TOPIC, b"v").result(patience())


def use_consumer(settings: dict[str, str]) -> None:
    with Consumer({**settings, "group.id": GROUP}) as consumer:
        consumer.subscribe([TOPIC])
        while True:
            consumer.poll(60_000)


def use_admin(settings: dict[str, str]) -> None:
    with Admin(settings) as admin:
        admin.list_topics()


@pytest.mark.parametrize("use", [use_producer, use_consumer, use_admin])
@pytest.mark.parametrize(("user", "password"), [(ALICE, "canary-guess"), ("mallory", PASSWORD)])
def test_a_client_with_a_wrong_user_or_password_gets_an_authentication_error(
    cluster: PasswordCluster, use: Callable[[dict[str, str]], None], user: str, password: str
) -> None:
    with pytest.raises(
        SaslAuthenticationError, match="invalid credentials with SASL mechanism SCRAM-SHA-512"
    ) as failed:
        use(cluster.client(user, password))
    assert "canary" not in str(failed.value)


def test_a_user_may_list_an_allowed_topic_and_may_not_create_another(cluster: PasswordCluster) -> None:
    with Admin(cluster.client()) as admin:
        assert TOPIC in admin.list_topics()
        with pytest.raises(BrokerError) as refused:
            admin.create_topics([NewTopic("others", partition_count=1, replication_factor=1)])
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_no_record_is_lost_or_doubled_while_sessions_end(cluster: PasswordCluster) -> None:
    """A producer sends one record after another, and a group reads them, over several logins."""
    stopped, sent = threading.Event(), 0
    with Producer(cluster.client(linger_ms="0")) as producer:
        begun = written = producer.send(TOPIC, b"-1").result(patience()).offset

        def produce() -> None:
            nonlocal sent, written
            while not stopped.is_set():
                written = producer.send(TOPIC, b"%d" % sent).result(patience()).offset
                sent += 1

        producing = threading.Thread(target=produce)
        producing.start()
        values: list[int] = []
        read = begun
        try:
            with Consumer(
                cluster.client(group_id=GROUP, auto_offset_reset="earliest", auto_commit_interval_ms="100")
            ) as consumer:
                consumer.subscribe([TOPIC])

                def take() -> None:
                    nonlocal read
                    for records in consumer.poll(1_000).values():
                        values.extend(int(record.value) for record in records if record.offset > begun)
                        read = max(read, records[-1].offset)

                timer = threading.Timer(RENEWALS * REAUTH_MS / 1000, stopped.set)
                timer.start()
                while not stopped.is_set():
                    take()
                producing.join(patience())
                wait_until(lambda: read >= written, lambda: f"read to {read} of {written}", between=take)
        finally:
            stopped.set()
            producing.join(patience())
    assert sent > 0
    with verdict():
        assert values == list(range(sent))


def begin_admin(settings: dict[str, str]) -> tuple[Any, Callable[[], object]]:
    admin = Admin(settings)
    return admin, admin.list_topics


def begin_producer(settings: dict[str, str]) -> tuple[Any, Callable[[], object]]:
    producer = Producer({**settings, "linger.ms": "0"})
    return producer, lambda: producer.send(TOPIC, b"-1").result(patience())


def begin_consumer(settings: dict[str, str]) -> tuple[Any, Callable[[], object]]:
    consumer = Consumer({**settings, "group.id": GROUP})
    consumer.subscribe([TOPIC])
    return consumer, lambda: consumer.poll(100)


@pytest.mark.parametrize("begin", [begin_admin, begin_producer, begin_consumer])
def test_a_changed_password_ends_the_sessions_of_the_old_one(
    cluster: PasswordCluster, begin: Callable[[dict[str, str]], tuple[Any, Callable[[], object]]]
) -> None:
    cluster.set_password(ALICE, "old")
    wait_until(lambda: logs_in(cluster.client(password="old")), cluster.logs)
    client, use = begin(cluster.client(password="old"))
    use()
    cluster.set_password(ALICE, PASSWORD)

    def is_refused() -> bool:
        try:
            use()
        except SaslAuthenticationError:
            return True
        return False

    wait_until(is_refused, cluster.logs)
    client.close()
    wait_until(lambda: logs_in(cluster.client()), cluster.logs)


def test_commands_log_in_with_the_settings_of_a_file(cluster: PasswordCluster, tmp_path: pathlib.Path) -> None:
    def file(name: str, settings: dict[str, Any]) -> pathlib.Path:
        path = tmp_path / name
        path.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        path.chmod(0o600)
        return path

    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    given = {name: text for name, text in cluster.client().items() if name != "sasl.jaas.config"}
    by_file = {**given, "sasl.username": ALICE, "sasl.password.file": str(password), "sasl.mechanism": "PLAIN"}
    klamm = KlammCommand(cluster.bootstrap)
    for settings in (cluster.client(), by_file):
        assert TOPIC in klamm.ok("topics", "list", "--command-config", file("right", settings)).out
    ended = klamm("topics", "list", "--command-config", file("wrong", cluster.client(password="canary-guess")))
    assert ended.status != 0
    assert "invalid credentials" in ended.err
    assert "canary" not in ended.err
    assert (
        "logs in first"
        in klamm("topics", "list", "--command-config", file("tls", {**given, "security.protocol": "SSL"})).err
    )
    found = klamm.ok("doctor", "--json", "--command-config", file("doctor", cluster.client())).document
    assert any(each["check"] == "versions" and each["text"].startswith("3 servers") for each in found)


def test_a_health_check_is_answered_without_a_login(
    cluster: PasswordCluster, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trusted = cluster.client()["ssl.truststore.location"]
    file = tmp_path / "health.properties"
    file.write_text(f"security.protocol=SASL_SSL\nssl.truststore.location={trusted}\n")
    for port in cluster.ports.values():
        assert health([f"{HOST}:{port}", "--config", str(file), "--timeout", str(patience())]) == 0
    assert capsys.readouterr().out == "SERVING\n" * 3


def test_no_log_shows_a_password(cluster: PasswordCluster) -> None:
    for process in cluster.processes:
        assert "canary" not in process.log_path.read_text()
