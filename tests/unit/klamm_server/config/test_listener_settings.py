"""Tests settings of single listeners: the names, the fallbacks, and the refusals."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm.setting import Setting, UpdateMode
from klamm_controller.config import ControllerConfig
from klamm_server.config.broker_configs import BROKER_CONFIGS, BrokerConfig
from klamm_server.config.environment import environment_properties, listeners_in
from klamm_server.config.listener_settings import followed, listener_setting
from klamm_server.config.server_config import describe, known_configs, load

LISTENERS = "GRPC://localhost:9094,IN_HOUSE://localhost:9092,KAFKA://localhost:9093"
COMMON = {"node.id": "1", "listeners": LISTENERS, "listener.security.protocol.map": "IN_HOUSE:PLAINTEXT"}


def _load(**own: str) -> BrokerConfig:
    return load(BrokerConfig, {**COMMON, **{f"listener.name.{name}": text for name, text in own.items()}})


def test_a_listener_setting_applies_to_that_listener_only() -> None:
    config = _load(**{"in_house.max.connections": "7"})
    assert config.at_listener("IN_HOUSE") == {"max_connections": 7}
    assert config.at_listener("KAFKA") == {}
    assert config.max_connections == BROKER_CONFIGS["max.connections"].default


def test_a_listener_setting_is_described_for_that_listener_only() -> None:
    config = _load(**{"in_house.max.connections": "7"})
    assert [line for line in describe(config) if line.startswith("listener.name.")] == [
        "listener.name.in_house.max.connections=7 (set)"
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "listener.name.outside.max.connections",
            "7",
            "listener.name.outside.max.connections: the listener does not exist, expected a name that begins with"
            " one of"
            " listener.name.grpc., listener.name.in_house., listener.name.kafka.",
        ),
        (
            "listener.name.KAFKA.max.connections",
            "7",
            "listener.name.KAFKA.max.connections: the listener does not exist, expected a name that begins with one of"
            " listener.name.grpc., listener.name.in_house., listener.name.kafka.",
        ),
        (
            "listener.name.kafka.max.connection",
            "7",
            "unknown configuration listener.name.kafka.max.connection; did you mean"
            " listener.name.kafka.max.connections?",
        ),
        (
            "listener.name.kafka.max.connections",
            "none",
            "listener.name.kafka.max.connections: 'none' is not valid, expected a whole number of 32 bits",
        ),
    ],
)
def test_invalid_listener_settings_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(BrokerConfig, {**COMMON, name: text})
    assert str(caught.value) == message


def test_a_setting_without_listener_scope_is_refused_at_a_listener() -> None:
    with pytest.raises(ConfigError, match=r"configuration listener\.name\.kafka\.fetch\.max\.bytes"):
        load(BrokerConfig, {**COMMON, "listener.name.kafka.fetch.max.bytes": "7"})


def test_a_services_own_setting_without_listener_scope_is_refused_at_a_listener() -> None:
    with pytest.raises(ConfigError, match=r"configuration listener\.name\.grpc\.metadata\.log\.dir"):
        load(ControllerConfig, {"node.id": "1", "listener.name.grpc.metadata.log.dir": "7"})


def test_a_controller_accepts_the_listener_settings_of_a_broker_without_effect() -> None:
    config = load(ControllerConfig, {"node.id": "1", "listener.name.grpc.max.connections": "7"})
    assert "listener.name.grpc.max.connections=7 (set, without effect)" in describe(config)


def test_an_environment_variable_can_set_a_listener_setting() -> None:
    environment = {
        "KLAMM_LISTENERS": LISTENERS,
        "KLAMM_LISTENER_NAME_IN_HOUSE_MAX_CONNECTIONS": "7",
        "KLAMM_MAX_CONNECTIONS": "8",
    }
    properties = environment_properties(environment, known_configs(BrokerConfig, listeners_in(environment)))
    assert properties == {
        "listeners": LISTENERS,
        "listener.name.in_house.max.connections": "7",
        "max.connections": "8",
    }


def test_a_variable_of_no_listener_is_refused() -> None:
    environment = {"KLAMM_LISTENER_NAME_OUTSIDE_MAX_CONNECTIONS": "7"}
    with pytest.raises(ConfigError, match="unknown configuration in the environment"):
        environment_properties(environment, known_configs(BrokerConfig, listeners_in(environment)))


def test_a_listener_setting_is_described_as_read_only() -> None:
    setting = listener_setting(BROKER_CONFIGS, "listener.name.x.max.connections")
    assert isinstance(setting, Setting)
    assert (setting.name, setting.default) == ("listener.name.x.max.connections", None)
    assert setting.update_mode is UpdateMode.READ_ONLY
    assert setting.validator == BROKER_CONFIGS["max.connections"].validator
    for other in ("max.connections", "listener.name.x.fetch.max.bytes", "listener.name.x"):
        assert listener_setting(BROKER_CONFIGS, other) is None


def test_a_listener_setting_falls_back_to_the_setting_without_the_prefix() -> None:
    assert followed("listener.name.x.max.connections") == "max.connections"
    assert followed("max.connections") is None


LOGINS = {
    "node.id": "1",
    "listeners": "GRPC://localhost:9094,SASL_PLAINTEXT://localhost:9092",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN,OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///all.json",
    "sasl.oauthbearer.expected.audience": "all",
    "sasl.oauthbearer.expected.issuer": "all",
}
AT = "listener.name.sasl_plaintext."


def test_a_mechanisms_setting_at_a_listener_overrides_the_listeners_setting() -> None:
    own = {
        f"{AT}connections.max.reauth.ms": "3",
        f"{AT}scram-sha-256.connections.max.reauth.ms": "1",
        f"{AT}oauthbearer.connections.max.reauth.ms": "2",
        f"{AT}sasl.oauthbearer.expected.issuer": "listener's",
        f"{AT}oauthbearer.sasl.oauthbearer.expected.issuer": "mechanism's",
        f"{AT}oauthbearer.sasl.oauthbearer.expected.audience": "mechanism's",
    }
    settings = load(BrokerConfig, {**LOGINS, **own}).sasl_settings("SASL_PLAINTEXT")
    assert [settings.max_reauth_ms(one) for one in ("SCRAM-SHA-256", "OAUTHBEARER", "PLAIN")] == [1, 2, 3]
    assert settings.sasl_oauthbearer_expected_issuer == "mechanism's"
    assert settings.sasl_oauthbearer_expected_audience == ("mechanism's",)
    assert settings.sasl_oauthbearer_jwks_endpoint_url == "file:///all.json"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("plain.sasl.oauthbearer.expected.issuer", "i", "unknown configuration"),
        ("plain.sasl.enabled.mechanisms", "PLAIN", "unknown configuration"),
        ("gssapi.connections.max.reauth.ms", "1", "unknown configuration"),
        ("plain.connections.max.reauth.ms", "-1", r"plain\.connections\.max\.reauth\.ms: '-1' is not valid"),
        ("oauthbearer.sasl.oauthbearer.jwks.endpoint.url", "http://i", "expected a URL that begins with"),
    ],
)
def test_an_unknown_or_invalid_setting_of_a_sasl_mechanism_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(BrokerConfig, {**LOGINS, f"{AT}{name}": text})


def test_a_mechanisms_setting_is_described_and_can_be_an_environment_variable() -> None:
    name = f"{AT}scram-sha-512.connections.max.reauth.ms"
    setting = listener_setting(BROKER_CONFIGS, name)
    assert setting is not None
    assert setting.name == name
    assert followed(name) == "connections.max.reauth.ms"
    assert listener_setting(BROKER_CONFIGS, f"{AT}scram-sha-512.max.connections") is None
    environment = {
        "KLAMM_LISTENERS": LOGINS["listeners"],
        "KLAMM_LISTENER_NAME_SASL_PLAINTEXT_SCRAM_SHA_512_CONNECTIONS_MAX_REAUTH_MS": "7",
    }
    assert environment_properties(environment, known_configs(BrokerConfig, listeners_in(environment)))[name] == "7"
