"""Tests broker settings that change at run time: by Kafka's requests, the gRPC API and the command, on real processes.

Each test shows the effect of a change. A restart keeps the change.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import pytest

from klamm import Admin, NewTopic, Producer
from klamm.admin import ConfigChange, ConfigOperation, ConfigResource, ConfigResourceType, ConfigSource
from klamm.errors import EXCEPTIONS, ErrorCode, KlammError
from klamm_broker.kafka.api import ApiKey
from tests.support.broker_cluster import BrokerCluster, broker_cluster
from tests.support.cli_runner import KlammCommand
from tests.support.kafka_wire import KafkaWire
from tests.support.klamm_process import KlammProcess, running_cluster
from tests.support.waiting import patience, wait_until

TOPIC, BROKER = 2, 4
ONE = ConfigResource(ConfigResourceType.BROKER, "1")
ALL = ConfigResource(ConfigResourceType.BROKER, "")
SET, DELETE = 0, 1
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1024**2), "min.cleanable.dirty.ratio": "0.01"}
InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Iterator[KlammProcess]:
    # At this rate nothing is compacted until the test changes it.
    settings = {"log.cleaner.io.max.bytes.per.second": "1", "log.cleaner.backoff.ms": "20"}
    with running_cluster(tmp_path, settings) as cluster:
        yield cluster


def alter(wire: KafkaWire, broker: str, name: str, value: str | None) -> tuple[str, str]:
    """Changes a setting as kafka-configs.sh does. Returns the error code and its message."""
    change = {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": [change]}
    asked = {"resources": [resource], "validate_only": False}
    (answer,) = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked).responses
    return answer.error_code.name, answer.error_message or ""


def described(wire: KafkaWire, broker: str, *names: str) -> dict[str, tuple[str | None, int, list[tuple[str, int]]]]:
    """Returns value, source and synonyms of each setting."""
    resource = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": list(names) or None}
    asked = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    (result,) = wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked).results
    return {
        config.name: (
            config.value,
            config.config_source,
            [(synonym.value, synonym.source) for synonym in config.synonyms],
        )
        for config in result.configs
    }


def refuses_another_connection(cluster: KlammProcess) -> bool:
    with contextlib.suppress(OSError), KafkaWire(cluster.kafka_bootstrap) as wire:
        wire.ask(ApiKey.API_VERSIONS, 0, {})
        return False
    return True


def is_cleaned(cluster: KlammProcess) -> bool:
    path = cluster.data_dir / "broker" / "cleaner-offset-checkpoint"
    return path.exists() and "states 0" in path.read_text()


def send(cluster: KlammProcess, topic: str, value: bytes) -> ErrorCode:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        try:
            producer.send(topic, value, key=b"k").result(timeout=patience())
        except KlammError as error:
            return getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
    return ErrorCode.NONE


def test_a_config_changed_at_run_time_takes_effect_and_survives_a_restart(cluster: KlammProcess) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("plain"), NewTopic("states", partition_count=1, configs=COMPACTED)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(3_000):
                producer.send("states", b"v" * 1_000, key=b"key-%d" % (number % 10))
        assert send(cluster, "plain", b"v" * 100_000) is ErrorCode.NONE

        # The gRPC API changes a topic default for all brokers.
        admin.incremental_alter_configs({ALL: [ConfigChange("message.max.bytes", "50000")]})
        wait_until(lambda: send(cluster, "plain", b"v" * 100_000) is ErrorCode.MESSAGE_TOO_LARGE)
        # The command changes the cleaner's rate on one broker.
        command = KlammCommand(cluster.bootstrap)
        assert not is_cleaned(cluster)
        altered = command("configs", "alter", "--broker", "1", "--set", "log.cleaner.io.max.bytes.per.second=1e9")
        assert (altered.status, altered.out) == (0, "altered log.cleaner.io.max.bytes.per.second\n"), altered
        wait_until(lambda: is_cleaned(cluster))
        altered = command("configs", "alter", "--brokers-default", "--set", "log.cleaner.threads=2")
        assert altered.status == 0, altered
        # Kafka's requests change a limit of connections.
        with KafkaWire(cluster.kafka_bootstrap) as wire:
            assert not refuses_another_connection(cluster)
            assert alter(wire, "1", "max.connections", "1") == ("none", "")
            wait_until(lambda: refuses_another_connection(cluster))

    cluster.kill()
    cluster.start()
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        wait_until(lambda: refuses_another_connection(cluster))
        found = described(wire, "1", "max.connections", "log.cleaner.threads", "message.max.bytes")
        assert found == {
            "max.connections": ("1", 2, [("1", 2), ("100000", 5)]),
            "log.cleaner.threads": ("2", 3, [("2", 3), ("1", 5)]),
            "message.max.bytes": ("50000", 3, [("50000", 3), ("1048588", 5)]),
        }
        assert described(wire, "") == {
            "log.cleaner.threads": ("2", 3, [("2", 3)]),
            "message.max.bytes": ("50000", 3, [("50000", 3)]),
        }
        assert alter(wire, "1", "max.connections", None) == ("none", "")
        wait_until(lambda: not refuses_another_connection(cluster))
    assert send(cluster, "plain", b"v" * 100_000) is ErrorCode.MESSAGE_TOO_LARGE


def test_an_invalid_dynamic_config_is_refused_with_name_value_and_expectation(cluster: KlammProcess) -> None:
    with KafkaWire(cluster.kafka_bootstrap) as wire:
        assert alter(wire, "1", "log.cleaner.threads", "many") == (
            "invalid_request",
            "log.cleaner.threads: 'many' is not valid, expected a whole number of 32 bits",
        )
        assert alter(wire, "", "log.cleaner.threads", "5") == (
            "invalid_request",
            "broker 1: log.cleaner.threads: 5 is not valid, expected 1 to 2, because the current value is 1",
        )
        assert alter(wire, "1", "num.partitions", "7") == (
            "invalid_request",
            "num.partitions is read-only: set it in the broker's own file",
        )
        assert described(wire, "") == {}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        with pytest.raises(InvalidRequestError, match=r"log\.scrub\.interval\.ms: '-2' is not valid"):
            admin.incremental_alter_configs({ONE: [ConfigChange("log.scrub.interval.ms", "-2")]})
        change = ConfigChange("log.scrub.interval.ms", "-1")
        admin.incremental_alter_configs({ONE: [change]}, validate_only=True)
        names = ["log.scrub.interval.ms"]
        entry = admin.describe_configs([ONE], names=names)[ONE]["log.scrub.interval.ms"]
        assert (entry.source, entry.read_only) == (ConfigSource.DEFAULT, False)
        admin.incremental_alter_configs({ONE: [change]})
        assert admin.describe_configs([ONE], names=names)[ONE]["log.scrub.interval.ms"].value == "-1"
        back = ConfigChange("log.scrub.interval.ms", operation=ConfigOperation.DELETE)
        admin.incremental_alter_configs({ONE: [back]})
        assert admin.describe_configs([ONE], names=names)[ONE]["log.scrub.interval.ms"].source is ConfigSource.DEFAULT


def changes_of_fetchers(cluster: BrokerCluster) -> list[int]:
    """Returns for each broker how often a number of fetchers came into force."""
    logs = [broker.log_path.read_text() for broker in cluster.brokers.values()]
    return [log.count("config in force: num.replica.fetchers=") for log in logs]


def test_followers_keep_replicating_when_num_replica_fetchers_changes(tmp_path: pathlib.Path) -> None:
    """A new stream follows every partition. All partitions reach their followers before and after the change."""
    with broker_cluster(tmp_path, 2) as cluster, cluster.admin() as admin:
        admin.create_topics([NewTopic("spread", partition_count=6, replication_factor=2)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:

            def replicate() -> None:
                sent = [producer.send("spread", b"v", partition=number % 6) for number in range(60)]
                for one in sent:
                    one.result(timeout=patience())

            replicate()
            for change, count in enumerate(("2", "4", "2"), start=1):
                admin.incremental_alter_configs({ALL: [ConfigChange("num.replica.fetchers", count)]})
                wait_until(lambda change=change: changes_of_fetchers(cluster) == [change, change])
                replicate()
            assert all(len(partition.isr) == 2 for partition in admin.describe_topics(["spread"])["spread"].partitions)
