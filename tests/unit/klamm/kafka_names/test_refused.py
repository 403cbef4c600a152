"""Kafka's names that Klamm refuses, and the names that Klamm tells a user to write in their place."""

from __future__ import annotations

from itertools import chain

import pytest

from klamm.client_file import read_client_file
from klamm.config import ClientConfig
from klamm.consumer.config import ConsumerConfig
from klamm.errors import BrokerError, ConfigError
from klamm.kafka_names.refused import advice, refused_names
from klamm.producer.config import ProducerConfig
from klamm.setting import definitions
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.config_defs import validate_topic_configs
from klamm_server.config.server_config import ServiceConfig, accepted_configs, load
from klamm_server.config.topic_configs import SYNONYMS, TOPIC_CONFIGS
from pyspark_klamm.cluster_access import AccessConfig

CLIENTS: tuple[type[ClientConfig], ...] = (ClientConfig, ProducerConfig, ConsumerConfig, AccessConfig)
SERVERS: tuple[type[ServiceConfig], ...] = (BrokerConfig, ControllerConfig, CoordinatorConfig)
KNOWN = [
    *({*definitions(client), *client.WITHOUT_EFFECT} for client in CLIENTS),
    *(set(accepted_configs(server, {})) for server in SERVERS),
    set(TOPIC_CONFIGS),
]


def test_each_replacement_is_a_setting_of_some_program() -> None:
    settings = set().union(*KNOWN)
    rows = chain.from_iterable(refused_names().values())
    assert not [replacement for row in rows for replacement in row.replacements if replacement not in settings]


def test_no_client_accepts_a_name_that_clients_refuse_with_a_replacement() -> None:
    rows = chain.from_iterable(refused_names().values())
    names = {(row.name, replacement) for row in rows for replacement in row.replacements}
    for known in KNOWN[: len(CLIENTS)]:
        assert not [name for name, replacement in names if name in known and replacement in known]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("request.required.acks", "write acks, because request.required.acks is a name of Kafka's Scala clients"),
        ("metadata.broker.list", "write bootstrap.servers, because metadata.broker.list is a name of Kafka's Scala"),
        ("queue.buffering.max.ms", "write linger.ms, because"),
        ("message.timeout.ms", "write delivery.timeout.ms, because message.timeout.ms is a name of librdkafka"),
        ("zookeeper.connect", "write bootstrap.servers, because Klamm has no ZooKeeper"),
        ("ssl.keystore.password", "write ssl.key.password, because Klamm reads keys from PEM files"),
        ("config.providers", "remove it, because Klamm has no config providers: write the values themselves"),
        ("sasl.login.class", "remove it, because Klamm loads no classes of Java"),
        ("key.deserializer", "remove it, because key.deserializer is a setting of consumers"),
        ("message.max.bytes", "write max.request.size, because message.max.bytes is a name of librdkafka"),
    ],
)
def test_a_producer_refuses_a_kafka_name_and_names_the_replacement(name: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ProducerConfig.parse({name: "1"})
    assert str(refused.value).startswith(f"unknown configuration {name}; {expected}")


@pytest.mark.parametrize(
    ("owner", "name", "expected"),
    [
        (
            BrokerConfig,
            "zookeeper.connect",
            "write controller.quorum.bootstrap.servers, because Klamm has no ZooKeeper",
        ),
        (BrokerConfig, "zookeeper.session.timeout.ms", "remove it, because Klamm has no ZooKeeper"),
        (
            BrokerConfig,
            "advertised.host.name",
            "write advertised.listeners, because advertised.host.name is a name that",
        ),
        (
            BrokerConfig,
            "inter.broker.protocol.version",
            "remove it, because inter.broker.protocol.version is a name that",
        ),
        (BrokerConfig, "retention.ms", "write log.retention.ms, because retention.ms is a setting of topics"),
        (BrokerConfig, "fetch.min.bytes", "remove it, because fetch.min.bytes is a setting of consumers"),
        (ControllerConfig, "port", "write listeners, because port is a name that Kafka's servers no longer have"),
        (CoordinatorConfig, "log.message.format.version", "remove it, because"),
    ],
)
def test_a_server_refuses_a_kafka_name_and_names_the_replacement(
    owner: type[ServiceConfig], name: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(owner, {"node.id": "1", name: "1"})
    assert str(refused.value).startswith(f"unknown configuration {name}; {expected}")


def test_a_topic_refuses_the_broker_name_of_its_setting_and_names_the_replacement() -> None:
    for name, expected in (
        ("log.retention.ms", "write retention.ms, because log.retention.ms is a setting of brokers"),
        ("message.max.bytes", "write max.message.bytes, because message.max.bytes is a setting of brokers"),
        ("message.format.version", "remove it, because message.format.version is a name that Kafka's topics no longer"),
    ):
        with pytest.raises(BrokerError) as refused:
            validate_topic_configs({name: "1"})
        assert f"unknown config {name}; {expected}" in str(refused.value)


def test_each_broker_synonym_of_a_topic_config_has_advice() -> None:
    for name, synonyms in SYNONYMS.items():
        if name != synonyms[0].name:
            assert advice(name, accepted_configs(BrokerConfig, {})) == (
                f"write {synonyms[0].name}, because {name} is a setting of topics"
            )


def test_the_spark_source_refuses_a_kafka_name_and_names_the_replacement() -> None:
    with pytest.raises(ConfigError, match=r"fetch\.message\.max\.bytes; write max\.partition\.fetch\.bytes, because"):
        AccessConfig.parse({"fetch.message.max.bytes": "1"})


def test_a_name_has_no_advice_for_a_program_without_its_replacement() -> None:
    assert advice("request.required.acks", {"group.id"}) is None
    assert advice("xyzzy", {"batch.size"}) is None


def test_a_client_file_refuses_a_kafka_name_and_names_the_replacement(tmp_path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("metadata.broker.list=h:9092\n")
    with pytest.raises(ConfigError, match=r"unknown configuration metadata\.broker\.list; write bootstrap\.servers"):
        read_client_file(str(path), ClientConfig)
