"""Tests the settings that a server with secured listeners needs, and that secrets stay hidden."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from klamm.errors import ConfigError
from klamm.secret import Secret
from klamm_controller.config import ControllerConfig
from klamm_server.config.broker_configs import BROKER_CONFIGS, BrokerConfig
from klamm_server.config.dynamic_configs import own_config
from klamm_server.config.server_config import describe, load

CANARY = "canary-4711"
COMMON = {
    "node.id": "1",
    "listeners": "GRPC://localhost:9094,SSL://broker:9092,INSIDE://broker:9093",
    "listener.security.protocol.map": "INSIDE:SSL",
    "ssl.keystore.location": "/server.pem",
}
MUTUAL = {"listener.name.inside.ssl.client.auth": "required", "ssl.truststore.location": "/ca.pem"}

MUTUAL_INSIDE = {
    "listeners": "GRPC://broker:9094,INSIDE://broker:9095",
    "listener.security.protocol.map": "INSIDE:GRPC_SSL",
    "inter.broker.listener.name": "INSIDE",
    "ssl.keystore.location": "/server.pem",
    **MUTUAL,
}
"""Servers use the mutual one; the other one is still open."""


def _load(own: Mapping[str, str]) -> BrokerConfig:
    return load(BrokerConfig, {**COMMON, **own})


def test_a_listener_falls_back_to_the_tls_settings_without_its_prefix() -> None:
    config = _load({**MUTUAL, "listener.name.inside.ssl.handshake.timeout.ms": "77"})
    inside, other = config.tls_settings("INSIDE"), config.tls_settings("SSL")
    assert (inside.ssl_client_auth, inside.ssl_handshake_timeout_ms) == ("required", 77)
    assert (other.ssl_client_auth, other.ssl_handshake_timeout_ms) == ("none", 10_000)
    assert inside.ssl_keystore_location == other.ssl_keystore_location == "/server.pem"


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            {"listener.name.inside.ssl.client.auth": "required"},
            "listener.name.inside.ssl.truststore.location is not set: ssl.client.auth=required needs the certificates"
            " of the CAs whose clients are believed",
        ),
        (
            {"listener.name.inside.ssl.client.auth": "yes"},
            "listener.name.inside.ssl.client.auth: 'yes' is not valid, expected one of none, requested, required",
        ),
        (
            {"listeners": "GRPC://broker:9094,SSL://broker:9092"},
            "inter.broker.listener.name: GRPC is GRPC at broker:9094, where any client could act as a server:"
            " with secured listeners or an authorizer, expected GRPC_SSL with ssl.client.auth=required, a loopback"
            " address or, while servers change to GRPC_SSL one after the other,"
            " security.migration.enable=true",
        ),
        (
            {"listeners": "GRPC_SSL://broker:9094,SSL://broker:9092"},
            "inter.broker.listener.name: GRPC_SSL is GRPC_SSL at broker:9094, where any client could act as a server:"
            " with secured listeners or an authorizer, expected GRPC_SSL with ssl.client.auth=required, a loopback"
            " address or, while servers change to GRPC_SSL one after the other,"
            " security.migration.enable=true",
        ),
        (
            {
                "listeners": "GRPC://localhost:9094,GRPC_SSL://broker:9095",
                "ssl.truststore.location": "/ca.pem",
                "ssl.client.auth": "requested",
            },
            "ssl.client.auth=requested: gRPC asks every client for a certificate or none, expected none or required",
        ),
        (
            {"listeners": "GRPC://localhost:9094,GRPC_SSL://broker:9095", "ssl.enabled.protocols": "TLSv1.3"},
            "ssl.enabled.protocols=TLSv1.3: gRPC always speaks TLSv1.2 and TLSv1.3, expected both",
        ),
    ],
)
def test_contradictory_tls_settings_are_refused(own: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(own)
    assert str(caught.value) == message


def test_servers_that_authenticate_each_other_with_certificates_may_listen_anywhere() -> None:
    properties = {
        "node.id": "1",
        "listeners": "SSL://broker:9092,GRPC_SSL://broker:9094,CLIENTS://broker:9095",
        "listener.security.protocol.map": "CLIENTS:GRPC_SSL",
        "ssl.keystore.location": "/server.pem",
        "ssl.truststore.location": "/ca.pem",
        "listener.name.grpc_ssl.ssl.client.auth": "required",
    }
    assert load(BrokerConfig, properties).resolved_listeners().between_servers.name == "GRPC_SSL"
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name: CLIENTS is GRPC_SSL"):
        load(BrokerConfig, {**properties, "inter.broker.listener.name": "CLIENTS"})


def test_callers_act_as_servers_at_one_listener_once_a_cluster_is_secured() -> None:
    def servers_listener(**settings: str) -> str | None:
        given = {"node.id": "1", **{name.replace("_", "."): value for name, value in settings.items()}}
        return load(BrokerConfig, given).servers_listener()

    secured = {"listeners": "GRPC://localhost:9094,SSL://broker:9092", "ssl_keystore_location": "/server.pem"}
    authorized = {"authorizer_class_name": "StandardAuthorizer", "super_users": "User:ANONYMOUS"}
    assert servers_listener(listeners="GRPC://broker:9094") is None
    assert servers_listener(**secured) == "GRPC"
    assert servers_listener(listeners="GRPC://localhost:9094", **authorized) == "GRPC"
    assert servers_listener(**secured, security_migration_enable="true") is None


def test_servers_may_use_an_open_listener_during_a_security_migration() -> None:
    properties = {
        "node.id": "1",
        "listeners": "GRPC://broker:9094,SSL://broker:9092",
        "ssl.keystore.location": "/server.pem",
        "security.migration.enable": "true",
    }
    load(BrokerConfig, properties)
    anonymous = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin;User:ANONYMOUS"}
    load(BrokerConfig, {**properties, **anonymous})
    with pytest.raises(ConfigError, match="User:ANONYMOUS is every client of the listener GRPC"):
        load(BrokerConfig, {"node.id": "1", "listeners": "GRPC://broker:9094", **anonymous} | MUTUAL_INSIDE)
    with pytest.raises(ConfigError, match=r"super\.users: other servers connect to GRPC without a certificate"):
        load(BrokerConfig, {**properties, **anonymous, "super.users": "User:admin"})
    with pytest.raises(ConfigError, match=r"security\.migration\.enable: no listener is secured"):
        load(BrokerConfig, {**properties, "listeners": "GRPC://broker:9094"})
    with pytest.raises(ConfigError, match="servers do not log in to each other"):
        load(BrokerConfig, {**properties, "listeners": "GRPC_SASL_SSL://broker:9094"})


def test_a_listener_with_sasl_is_refused_as_the_listener_between_servers() -> None:
    for host in ("broker", "127.0.0.1"):
        with pytest.raises(ConfigError, match=r"GRPC_SASL_PLAINTEXT, and servers do not log in to each other"):
            load(BrokerConfig, {"node.id": "1", "listeners": f"GRPC_SASL_PLAINTEXT://{host}:9094"})
    listeners = "GRPC://127.0.0.1:9093,GRPC_SASL_PLAINTEXT://broker:9094"
    assert load(BrokerConfig, {"node.id": "1", "listeners": listeners}).resolved_listeners().secured


def test_node_principals_need_client_certificates_between_servers() -> None:
    with pytest.raises(
        ConfigError,
        match=r"node\.principals: servers do not authenticate each other with"
        r" certificates",
    ):
        load(BrokerConfig, {"node.id": "1", "node.principals": "broker:1=User:b"})
    with pytest.raises(ConfigError, match="expected a list of KIND:ID=User:NAME"):
        load(BrokerConfig, {"node.id": "1", "node.principals": "broker=User:b"})


def test_a_listener_with_tls_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="a server needs a key and a certificate"):
        load(BrokerConfig, {name: text for name, text in COMMON.items() if not name.startswith("ssl.")})


def test_the_metrics_of_a_server_with_secured_listeners_are_local_by_default() -> None:
    local = {"listeners": "GRPC://127.0.0.1:9094,SSL://broker:9092,INSIDE://broker:9093"}
    assert _load(local).resolved_metrics_host() == "localhost"
    assert _load({**local, "metrics.host": "broker"}).resolved_metrics_host() == "broker"


def test_a_secret_is_in_no_text_of_the_config_and_not_in_the_registration() -> None:
    config = _load({"ssl.key.password": CANARY, "listener.name.inside.ssl.key.password": CANARY})
    assert config.tls_settings("INSIDE").ssl_key_password == Secret(CANARY)
    texts = [repr(config), *describe(config), *map(str, config.originals.items())]
    assert not [text for text in texts if CANARY in text]
    assert "ssl.key.password=[hidden] (set)" in texts
    assert "listener.name.inside.ssl.key.password=[hidden] (set)" in texts
    # The controllers validate the values that they received, without knowing any secret.
    own_config(1, {name: str(text) for name, text in config.originals.items()}).validate()


def test_an_error_about_a_secret_does_not_contain_it() -> None:
    with pytest.raises(ConfigError) as caught:
        _load({"ssl.keystore.location": CANARY, "ssl.keystore.key": CANARY})
    assert CANARY not in str(caught.value)


def test_every_server_accepts_tls_settings_and_brokers_describe_them() -> None:
    assert BROKER_CONFIGS["ssl.keystore.key"].sensitive
    assert BROKER_CONFIGS["ssl.client.auth"].per_listener
    load(ControllerConfig, {"node.id": "1", "ssl.client.auth": "required"})


@pytest.mark.parametrize(("own", "expected"), [({}, "none"), ({"ssl.client.auth": "requested"}, "requested")])
def test_at_a_sasl_listener_only_its_own_ssl_client_auth_applies(own: dict[str, str], expected: str) -> None:
    properties = {
        "node.id": "1",
        "listeners": "SSL://broker:9092,SASL_SSL://broker:9093,GRPC://127.0.0.1:9094",
        "ssl.keystore.location": "/server.pem",
        "ssl.truststore.location": "/ca.pem",
        "ssl.client.auth": "required",
        **{f"listener.name.sasl_ssl.{name}": text for name, text in own.items()},
    }
    config = load(BrokerConfig, properties)
    assert config.tls_settings("SSL").ssl_client_auth == "required"
    assert config.tls_settings("SASL_SSL").ssl_client_auth == expected
    assert config.passes_over_client_auth("SASL_SSL") is (not own)
    assert not config.passes_over_client_auth("SSL")
