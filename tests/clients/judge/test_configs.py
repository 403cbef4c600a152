"""DescribeConfigs by Klamm and Apache Kafka: of a config that both have they say the same but for a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.known_config_differences import BROKER, ONLY_HERE, TOPIC
from tests.clients.judge.side import TIMEOUT_MS, Side
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

Sides = tuple[Side, Side]
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ALL_BROKERS = ""
DYNAMIC = (2, 3)
"""Sources of what is set at run time, on a broker or on all."""


def described(side: Side, kind: int, name: str, *, keys: list[str] | None = None) -> dict[str, Mapping[str, Any]]:
    """All that the answer says of each config."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    asked = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (result,) = side.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked).results
    return {
        config.name: {
            "value": config.value,
            "source": config.config_source,
            "read_only": config.read_only,
            "sensitive": config.is_sensitive,
            "type": config.config_type,
            "documented": bool(config.documentation),
            "synonyms": [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms],
        }
        for config in result.configs
    }


def differing(sides: Sides, kind: int, name: str, *, keys: list[str] | None = None) -> dict[str, list[str]]:
    """The fields in which both differ, by config, of those that both have."""
    ours, kafka = (described(side, kind, name, keys=keys) for side in sides)
    assert ours
    fields = {
        config: [field for field in ours[config] if ours[config][field] != kafka[config][field]]
        for config in ours.keys() & kafka.keys()
    }
    return {config: names for config, names in fields.items() if names}


def alter(side: Side, kind: int, name: str, **configs: str | None) -> None:
    """Sets the configs to these values. None removes a config's value."""
    changes = [
        {"name": key.replace("_", "."), "config_operation": value is None, "value": value}
        for key, value in configs.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": changes}
    asked = {"resources": [resource], "validate_only": False}
    (answer,) = side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked).responses
    assert answer.error_code.name == "none", answer


def wait_until_applied(side: Side, levels: list[tuple[str, dict[str, str]]]) -> None:
    """Kafka's broker learns of the changes a moment after they are acknowledged."""
    for broker, values in levels:
        wanted = {key.replace("_", ".") for key in values}
        wait_until(lambda broker=broker, wanted=wanted: wanted <= dynamic(side, broker))


def dynamic(side: Side, broker: str) -> set[str]:
    """The configs of a broker that were set at run time."""
    described_now = described(side, BROKER_RESOURCE, broker)
    return {config for config, said in described_now.items() if said["source"] in DYNAMIC}


@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_the_described_topic_configs_differ_from_kafkas_only_as_the_table_says(sides: Sides, topic: str) -> None:
    ours, kafka = (described(side, TOPIC_RESOURCE, topic).keys() for side in sides)
    assert ours - ONLY_HERE.keys() == kafka
    assert differing(sides, TOPIC_RESOURCE, topic) == {name: list(fields) for name, (fields, _) in TOPIC.items()}


def test_the_described_broker_configs_differ_from_kafkas_only_as_the_table_says(sides: Sides) -> None:
    expected = {name: list(fields) for name, (fields, _) in BROKER.items()}
    assert differing(sides, BROKER_RESOURCE, "1") == expected


def test_configs_of_a_topic_a_broker_and_all_brokers_have_the_same_values_as_in_kafka(sides: Sides, name: str) -> None:
    """Sets configs on one topic, on its broker and on all brokers, and compares their values."""
    configs = {"cleanup.policy": "compact,delete", "retention.bytes": "5000000"}
    levels: list[tuple[str, dict[str, str]]] = [
        ("1", {"log_retention_bytes": "4000000"}),
        (ALL_BROKERS, {"log_retention_bytes": "3000000", "log_retention_ms": "200000000"}),
    ]
    for side in sides:
        side.create_topic(name, configs=configs)
        for broker, values in levels:
            alter(side, BROKER_RESOURCE, broker, **values)
        wait_until_applied(side, levels)
    try:
        keys = ["cleanup.policy", "retention.bytes", "retention.ms", "segment.ms"]
        assert differing(sides, TOPIC_RESOURCE, name, keys=keys) == {"retention.bytes": ["synonyms"]}
        for broker in ("1", ALL_BROKERS):
            keys = ["log.retention.bytes", "log.retention.ms", "log.retention.hours"]
            assert differing(sides, BROKER_RESOURCE, broker, keys=keys) == {}
    finally:
        for side in sides:
            for broker, values in levels:
                alter(side, BROKER_RESOURCE, broker, **dict.fromkeys(values))
            side.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [name], "timeout": TIMEOUT_MS})


CLEANER = {"log_cleaner_threads": "2", "log_cleaner_backoff_ms": "20000"}


def test_dynamic_configs_of_a_broker_are_shown_removed_and_refused_as_in_kafka(sides: Sides) -> None:
    """Compares the values of one broker and of all brokers field by field. Then removes values, and tries some that are
    refused."""
    levels: list[tuple[str, dict[str, str]]] = [("1", CLEANER), (ALL_BROKERS, {"log_cleaner_backoff_ms": "30000"})]
    for side in sides:
        for broker, values in levels:
            alter(side, BROKER_RESOURCE, broker, **values)
        wait_until_applied(side, levels)
    try:
        keys = ["log.cleaner.threads", "log.cleaner.backoff.ms", "log.cleaner.io.buffer.size", "num.replica.fetchers"]
        for broker in ("1", ALL_BROKERS):
            assert differing(sides, BROKER_RESOURCE, broker, keys=keys) == {}
        ours = described(sides[0], BROKER_RESOURCE, "1", keys=keys)
        assert ours["log.cleaner.backoff.ms"]["synonyms"] == [
            ("log.cleaner.backoff.ms", "20000", 2),
            ("log.cleaner.backoff.ms", "30000", 3),
            ("log.cleaner.backoff.ms", "15000", 5),
        ]
        for broker, name, value in (
            ("1", "log.cleaner.threads", "5"),
            ("1", "log.cleaner.threads", "0"),
            (ALL_BROKERS, "num.replica.fetchers", "3"),
            ("1", "num.replica.fetchers", "few"),
            (ALL_BROKERS, "num.partitions", "3"),
            ("1", "log.cleaner.io.buffer.load.factor", "full"),
        ):
            codes = {refusal(side, broker, name, value) for side in sides}
            assert codes == {"invalid_request"}, (broker, name, value)
    finally:
        for side in sides:
            for broker, values in levels:
                alter(side, BROKER_RESOURCE, broker, **dict.fromkeys(values))


def test_a_config_without_effect_is_shown_and_refused_as_in_kafka(sides: Sides) -> None:
    """`klamm_server.config.configs_without_effect`: one that librdkafka's tests set, one of all brokers, a password."""
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required;"
    levels: list[tuple[str, dict[str, str]]] = [
        ("1", {"sasl_kerberos_min_time_before_relogin": "58000", "sasl_jaas_config": jaas}),
        (ALL_BROKERS, {"max_connections_per_ip": "1000"}),
    ]
    keys = ["sasl.kerberos.min.time.before.relogin", "sasl.jaas.config", "max.connections.per.ip"]
    assert described(sides[0], BROKER_RESOURCE, "1", keys=keys) == {}
    for side in sides:
        for broker, values in levels:
            alter(side, BROKER_RESOURCE, broker, **values)
        wait_until_applied(side, levels)
    try:
        for broker, configs in (("1", keys), (ALL_BROKERS, keys[2:])):
            assert described(sides[0], BROKER_RESOURCE, broker, keys=keys).keys() == set(configs)
            assert differing(sides, BROKER_RESOURCE, broker, keys=keys) == {}
        for broker, name, value in (
            ("1", "broker.id", "3"),
            ("1", "offsets.retention.minutes", "3"),
            ("1", "num.io.threads", "few"),
            ("1", "sasl.login.refresh.buffer.seconds", "40000"),
            ("1", "ssl.keystore.password", "secret"),
            (ALL_BROKERS, "sasl.kerberos.min.time.before.relogin", "58000"),
        ):
            codes = {refusal(side, broker, name, value) for side in sides}
            assert codes == {"invalid_request"}, (broker, name, value)
    finally:
        for side in sides:
            for broker, values in levels:
                alter(side, BROKER_RESOURCE, broker, **dict.fromkeys(values))


def refusal(side: Side, broker: str, name: str, value: str) -> str:
    """The error code with which a change is refused."""
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": broker, "configs": [change]}
    (answer,) = side.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": True}
    ).responses
    return str(answer.error_code.name)
