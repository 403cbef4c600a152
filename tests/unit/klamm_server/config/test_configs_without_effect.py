"""Tests Kafka's broker configs that a broker of Klamm does not read."""

from __future__ import annotations

import logging

import pytest

from klamm.errors import ConfigError
from klamm.setting import ConfigType, UpdateMode
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BROKER_CONFIGS, BrokerConfig
from klamm_server.config.configs_without_effect import accepted_without_effect, configs_without_effect, stored_text
from klamm_server.config.server_config import (
    ServiceConfig,
    describe,
    known_configs,
    load,
    log_effective,
    reasons_without_effect,
)

RELOGIN = "sasl.kerberos.min.time.before.relogin"
LISTENERS = {
    "node.id": "1",
    "listeners": "GRPC://localhost:9094,SASL_PLAINTEXT://localhost:9092",
    "sasl.enabled.mechanisms": "PLAIN",
}


def test_no_config_that_a_broker_reads_is_without_effect() -> None:
    assert not configs_without_effect().keys() & BROKER_CONFIGS.keys()


def test_a_config_has_kafkas_type_default_and_update_mode() -> None:
    known = configs_without_effect()
    relogin, password, handler = (known[name] for name in (RELOGIN, "ssl.keystore.password", "sasl.login.class"))
    assert (relogin.type, relogin.default, relogin.update_mode) == (ConfigType.LONG, 60_000, UpdateMode.PER_BROKER)
    assert (password.type, password.sensitive, password.default) == (ConfigType.PASSWORD, True, None)
    assert (handler.type, handler.parse("com.example.Login")) == (ConfigType.CLASS, "com.example.Login")
    assert known["num.io.threads"].update_mode is UpdateMode.CLUSTER_WIDE
    assert known["kafka.metrics.reporters"].default == ()
    assert known["sasl.login.refresh.buffer.seconds"].type is ConfigType.SHORT


def test_every_config_without_effect_can_be_parsed_and_described() -> None:
    for name, setting in configs_without_effect().items():
        assert setting.name == name
        assert "has no effect" in setting.documentation
        if setting.has_default:
            assert setting.parse(setting.default_text()) == setting.default


@pytest.mark.parametrize(("servers", "owner"), [("controllers", ControllerConfig), ("coordinators", CoordinatorConfig)])
def test_a_config_without_effect_names_the_servers_that_read_it(servers: str, owner: type[ServiceConfig]) -> None:
    named = {name for name, setting in configs_without_effect().items() if setting.read_by == servers}
    assert named == configs_without_effect().keys() & known_configs(owner).keys()


@pytest.mark.parametrize("owner", [BrokerConfig, ControllerConfig, CoordinatorConfig])
def test_every_server_starts_with_a_config_without_effect(owner: type[ServiceConfig]) -> None:
    config = load(owner, {"node.id": "1", "num.io.threads": "16"})
    assert config.originals["num.io.threads"] == "16"
    assert "num.io.threads=16 (set, without effect)" in describe(config)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("num.io.threads", "many", "num.io.threads: 'many' is not valid, expected a whole number of 32 bits"),
        ("sasl.login.refresh.min.period.seconds", "32768", "expected a whole number of 16 bits"),
        ("num.io.thread", "8", "unknown configuration num.io.thread; did you mean num.io.threads?"),
        ("zookeeper.connect", "h:2181", "unknown configuration zookeeper.connect"),
    ],
)
def test_a_value_of_another_type_and_a_misspelt_name_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(BrokerConfig, {"node.id": "1", name: text})
    assert message in str(caught.value)


def test_configs_without_effect_are_logged_in_one_line_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    given = {"num.io.threads": "16", "background.threads": "5", "offsets.retention.minutes": "5", "broker.id": "1"}
    config = load(BrokerConfig, {"node.id": "1", "num.partitions": "3", **given})
    with caplog.at_level(logging.INFO):
        log_effective(config)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    head = "these configs were set and have no effect here, because"
    assert warnings == [
        f"{head} a server of Klamm handles all requests in one event loop: background.threads, num.io.threads",
        f"{head} the id of a server of Klamm is node.id: broker.id",
        f"{head} the coordinators read them: offsets.retention.minutes",
    ]


@pytest.mark.parametrize("owner", [ControllerConfig, CoordinatorConfig])
def test_a_server_accepts_the_settings_of_brokers_without_effect(owner: type[ServiceConfig]) -> None:
    given = {"node.id": "1", "log.dirs": "/data", "log.retention.hours": "5"}
    assert reasons_without_effect(load(owner, given)) == {
        "they are the directories of a broker, and metadata.log.dir is the directory of a controller": ["log.dirs"],
        "the brokers read them": ["log.retention.hours"],
    }
    with pytest.raises(ConfigError, match=r"log\.retention\.hours: 'many' is not valid"):
        load(owner, {**given, "log.retention.hours": "many"})


def test_a_listeners_config_without_effect_has_the_same_reason() -> None:
    config = load(BrokerConfig, {**LISTENERS, "listener.name.sasl_plaintext.sasl.kerberos.service.name": "kafka"})
    assert list(reasons_without_effect(config)) == ["Klamm has no Kerberos"]


def test_a_start_without_configs_without_effect_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_effective(load(BrokerConfig, {"node.id": "1", "num.partitions": "3"}))
    assert not caplog.messages


@pytest.mark.parametrize(
    "name",
    ["sasl.jaas.config", "plain.sasl.jaas.config", "ssl.provider", "num.network.threads", "principal.builder.class"],
)
def test_a_listener_may_have_its_own_configs_without_effect(name: str) -> None:
    config = load(BrokerConfig, {**LISTENERS, f"listener.name.sasl_plaintext.{name}": "7"})
    assert any(
        f"listener.name.sasl_plaintext.{name}=" in line and "without effect" in line for line in describe(config)
    )


@pytest.mark.parametrize("name", ["listener.name.sasl_plaintext.num.io.threads", "listener.name.gone.sasl.jaas.config"])
def test_a_config_without_effect_is_refused_at_an_unknown_listener_or_if_it_is_global(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load(BrokerConfig, {**LISTENERS, name: "7"})


def test_a_password_without_effect_is_neither_logged_nor_stored(caplog: pytest.LogCaptureFixture) -> None:
    config = load(BrokerConfig, {"node.id": "1", "ssl.keystore.password": "hunter2"})
    with caplog.at_level(logging.INFO):
        log_effective(config)
    assert "config ssl.keystore.password=[hidden] (set, without effect)" in caplog.messages
    assert "hunter2" not in caplog.text
    assert str(config.originals["ssl.keystore.password"]) == "[hidden]"
    assert stored_text("sasl.jaas.config", "hunter2") == "[hidden]"
    assert stored_text(RELOGIN, "5") == "5"
    assert stored_text("num.partitions", "5") == "5"


def test_a_servers_own_settings_are_not_among_its_configs_without_effect() -> None:
    accepted = accepted_without_effect(known_configs(CoordinatorConfig), [])
    assert "group.max.size" not in accepted
    assert "auto.leader.rebalance.enable" in accepted
