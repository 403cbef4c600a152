"""Users who log in by SCRAM, administered by Kafka's own clients, here and at Apache Kafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import admin as confluent

from klamm_broker.kafka.api import ApiKey
from tests.support import java_programs
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_wire import KafkaWire

TIMEOUT_S = 60
pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


def configs(bootstrap: str, *arguments: str) -> tuple[int, str]:
    """kafka-configs.sh about a user: its exit status and what it prints."""
    run = subprocess.run(
        java_programs.command(
            "org.apache.kafka.tools.ConfigCommand",
            "--bootstrap-server",
            bootstrap,
            "--entity-type",
            "users",
            *arguments,
        ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return run.returncode, "\n".join(line for line in run.stdout.splitlines() if not line.startswith("\tat "))


def credentials(bootstrap: str) -> dict[str, dict[int, int]]:
    """Iterations by user and mechanism."""
    with KafkaWire(bootstrap) as wire:
        answer = wire.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})
    return {
        result.user: {info.mechanism: info.iterations for info in result.credential_infos} for result in answer.results
    }


@pytest.fixture
def no_users(bootstrap: str) -> Iterator[None]:
    """Removes all users after a test, because other tests use the same cluster and expect none."""
    yield
    with KafkaWire(bootstrap) as wire:
        for user, mechanisms in credentials(bootstrap).items():
            for mechanism in mechanisms:
                deletion = {"name": user, "mechanism": mechanism}
                wire.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [deletion], "upsertions": []})


@pytest.mark.behaviour("Kafka's command-line tools", "users who log in by SCRAM")
def test_kafka_configs_changes_users_in_klamm_as_in_kafka(
    bootstrap: str, apache_kafka: ApacheKafka, no_users: None
) -> None:
    commands = [
        ("--alter", "--entity-name", "alice", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]"),
        ("--alter", "--entity-name", "alice", "--add-config", "SCRAM-SHA-512=[password=secret]"),
        ("--alter", "--entity-name", "bob", "--add-config", "SCRAM-SHA-256=[iterations=4095,password=secret]"),
        ("--alter", "--entity-name", "alice", "--delete-config", "SCRAM-SHA-256"),
        ("--alter", "--entity-name", "alice", "--delete-config", "SCRAM-SHA-256"),
    ]
    sides = (bootstrap, apache_kafka.bootstrap)
    for command in commands:
        ours, theirs = (configs(side, *command) for side in sides)
        assert ours[0] == theirs[0], (command, ours, theirs)
        assert credentials(bootstrap) == credentials(apache_kafka.bootstrap)
    assert credentials(bootstrap) == {"alice": {2: 4096}}
    for who in ((), ("--entity-name", "alice")):
        ours, theirs = (configs(side, "--describe", *who) for side in sides)
        assert ours == theirs
        assert ours == (0, "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=4096")


def test_confluent_adds_and_describes_a_scram_user(bootstrap: str, no_users: None) -> None:
    client = confluent.AdminClient({"bootstrap.servers": bootstrap})
    info = confluent.ScramCredentialInfo(confluent.ScramMechanism.SCRAM_SHA_512, 5000)
    upsertion = confluent.UserScramCredentialUpsertion("carol", info, b"secret")
    for answer in client.alter_user_scram_credentials([upsertion]).values():
        answer.result(TIMEOUT_S)
    described = client.describe_user_scram_credentials(["carol"])["carol"].result(TIMEOUT_S)
    assert [
        (credential_info.mechanism, credential_info.iterations) for credential_info in described.scram_credential_infos
    ] == [(confluent.ScramMechanism.SCRAM_SHA_512, 5000)]
