"""Quotas of clients, administered by Kafka's own program, here and at Apache Kafka."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import admin

from klamm_broker.kafka.api import ApiKey
from tests.support import java_programs
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import wait_until

TIMEOUT_S = 120
CONNECTIONS = 16
"""A rate of one connection a second allows about ten at once."""
pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

Quotas = dict[frozenset[tuple[str, str | None]], dict[str, float]]


def configs(bootstrap: str, *arguments: str) -> tuple[int, set[str]]:
    """Runs kafka-configs.sh, and returns its exit status and the set of its output lines."""
    run = subprocess.run(
        java_programs.command("org.apache.kafka.tools.ConfigCommand", "--bootstrap-server", bootstrap, *arguments),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return run.returncode, {line for line in run.stdout.splitlines() if not line.startswith("\tat ")}


def quotas(bootstrap: str) -> Quotas:
    """Values by entity and key."""
    with KafkaWire(bootstrap) as wire:
        return quotas_by(wire)


def quotas_by(wire: KafkaWire) -> Quotas:
    answer = wire.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


@pytest.fixture
def no_quotas(bootstrap: str, apache_kafka: ApacheKafka) -> Iterator[None]:
    """Removes all quotas after a test, because other tests use the same clusters and must not be throttled."""
    yield
    for side in (bootstrap, apache_kafka.bootstrap):
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "ops": [{"key": key, "value": 0.0, "remove": True} for key in values],
            }
            for entity, values in quotas(side).items()
        ]
        with KafkaWire(side) as wire:
            wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})


@pytest.mark.behaviour("Kafka's command-line tools", "quotas of users, client ids and addresses")
def test_kafka_configs_changes_quotas_in_klamm_as_in_kafka(
    bootstrap: str, apache_kafka: ApacheKafka, no_quotas: None
) -> None:
    users, clients, ips = ((*("--entity-type", kind),) for kind in ("users", "clients", "ips"))
    bytes_in, bytes_out = "producer_byte_rate=100000000", "consumer_byte_rate=200000000"
    commands = [
        ("--alter", *users, "--entity-name", "alice", "--add-config", f"{bytes_in},request_percentage=99.5"),
        ("--alter", *users, "--entity-default", "--add-config", bytes_out),
        ("--alter", *users, "--entity-name", "alice", *clients, "--entity-name", "app", "--add-config", bytes_in),
        ("--alter", *clients, "--entity-default", "--add-config", "controller_mutation_rate=100000"),
        ("--alter", *ips, "--entity-name", "192.0.2.1", "--add-config", "connection_creation_rate=1000"),
        ("--alter", *ips, "--entity-default", "--add-config", "connection_creation_rate=0"),
        ("--alter", *users, "--entity-name", "alice", "--add-config", "x=1"),
        ("--alter", *users, "--entity-name", "alice", "--delete-config", "producer_byte_rate"),
    ]
    sides = (bootstrap, apache_kafka.bootstrap)
    for command in commands:
        ours, theirs = (configs(side, *command) for side in sides)
        assert ours[0] == theirs[0], (command, ours, theirs)
        assert quotas(bootstrap) == quotas(apache_kafka.bootstrap), command
    assert quotas(bootstrap) == {
        frozenset({("user", "alice")}): {"request_percentage": 99.5},
        frozenset({("user", None)}): {"consumer_byte_rate": 200_000_000},
        frozenset({("user", "alice"), ("client-id", "app")}): {"producer_byte_rate": 100_000_000},
        frozenset({("client-id", None)}): {"controller_mutation_rate": 100_000},
        frozenset({("ip", "192.0.2.1")}): {"connection_creation_rate": 1000},
    }
    for who in (users, (*users, "--entity-name", "alice"), clients, ips):
        ours, theirs = (configs(side, "--describe", *who) for side in sides)
        assert ours == theirs
        assert len(ours[1]) > 0


@pytest.fixture
def slow_client(bootstrap: str, no_quotas: None) -> str:
    """A client id that may send and get 100 KB a second."""
    name = "slow-client"
    rates = "producer_byte_rate=100000,consumer_byte_rate=100000"
    status, lines = configs(
        bootstrap, "--alter", "--entity-type", "clients", "--entity-name", name, "--add-config", rates
    )
    assert status == 0, lines
    return name


@pytest.fixture
def topic(bootstrap: str, name: str, wait_until_known: Callable[[str], None]) -> str:
    """Creates a topic with one partition, so that one broker receives and serves all records."""
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([admin.NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    wait_until_known(name)
    return name


def printed_metric(main_class: str, arguments: list[str], metric: str) -> float:
    """Runs Kafka's own benchmark, and returns this metric of its output."""
    run = subprocess.run(
        java_programs.command(main_class, *arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (value,) = re.findall(rf":{metric}:\{{.*}}\s*:\s*([\d.]+)", run.stdout) or [run.stdout]
    return float(value)


@pytest.mark.behaviour("Kafka's command-line tools", "quotas of users, client ids and addresses")
def test_javas_metrics_show_the_throttle_time(bootstrap: str, slow_client: str, topic: str, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(f"bootstrap.servers={bootstrap}\nclient.id={slow_client}\n")
    # Ten seconds' worth are free.
    records = ["--num-records", "1300", "--record-size", "1000", "--throughput", "-1"]
    produce = ["--topic", topic, *records, "--command-config", str(settings), "--print-metrics"]
    rested_ms = printed_metric("org.apache.kafka.tools.ProducerPerformance", produce, "produce-throttle-time-max")
    assert rested_ms > 100
    consume = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "1300", "--timeout", "60000"]
    consume += ["--command-config", str(settings), "--print-metrics", "--fetch-size", "200000"]
    rested_ms = printed_metric("org.apache.kafka.tools.ConsumerPerformance", consume, "fetch-throttle-time-max")
    assert rested_ms > 100


def test_librdkafkas_callback_gets_the_throttle_time(bootstrap: str, slow_client: str, topic: str) -> None:
    told: list[float] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": slow_client,
            "linger.ms": 0,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    for _ in range(13):
        producer.produce(topic, bytes(100_000))
        assert producer.flush(TIMEOUT_S) == 0
    assert max(told) > 0.1


def test_klamm_delays_connections_above_the_rate_of_an_address_and_kafka_closes_them(
    bootstrap: str, apache_kafka: ApacheKafka, no_quotas: None
) -> None:
    ours, theirs = (opened_too_fast(side) for side in (bootstrap, apache_kafka.bootstrap))
    assert ours == [True] * CONNECTIONS
    assert {*theirs} == {True, False}


def opened_too_fast(bootstrap: str) -> list[bool]:
    """Opens CONNECTIONS connections at once with a quota of one a second. Returns for each whether it got an answer,
    and was not closed."""

    def limit(*, remove: bool) -> None:
        entity = {"entity_type": "ip", "entity_name": "127.0.0.1"}
        change = {"key": "connection_creation_rate", "value": 1.0, "remove": remove}
        entries = [{"entity": [entity], "ops": [change]}]
        asked = {"entries": entries, "validate_only": False}
        assert not first.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, asked).entries[0].error_code

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(KafkaWire(bootstrap))
        limit(remove=False)
        wait_until(lambda: any("connection_creation_rate" in values for values in quotas_by(first).values()))
        wires = [stack.enter_context(KafkaWire(bootstrap)) for _ in range(CONNECTIONS)]
        answered = []
        for wire in wires:
            try:
                wire.ask(ApiKey.API_VERSIONS, 0, {})
                answered.append(True)
            except ConnectionError:
                answered.append(False)
        limit(remove=True)
        wait_until(lambda: not quotas_by(first))
    return answered
