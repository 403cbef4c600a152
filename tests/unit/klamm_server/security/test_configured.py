"""Tests which settings enable an authorizer, and which are refused as mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.errors import ConfigError
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.security.configured import authorizer_of, check_own_principal
from klamm_server.security.listeners_tls import ListenersTls
from tests.support import certificates

ON = {"node.id": "1", "authorizer.class.name": "StandardAuthorizer"}
LOCAL = {**ON, "super.users": "User:ANONYMOUS"}


def test_without_an_authorizer_class_there_is_no_authorizer() -> None:
    assert authorizer_of(load(BrokerConfig, {"node.id": "1"})) is None


@pytest.mark.parametrize("name", ["StandardAuthorizer", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"])
def test_super_users_are_separated_by_semicolons(name: str) -> None:
    users = "User:ANONYMOUS; User:CN=broker,O=shop"
    authorizer = authorizer_of(load(BrokerConfig, {**ON, "authorizer.class.name": name, "super.users": users}))
    assert authorizer is not None
    assert authorizer.is_super_user("User:CN=broker,O=shop")
    assert authorizer.is_super_user("User:ANONYMOUS")
    assert not authorizer.is_super_user("User:CN=broker")


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"node.id": "1", "super.users": "User:a"}, "super.users"),
        ({**ON, "super.users": "admin"}, "super.users"),
        ({**ON, "authorizer.class.name": "AclAuthorizer"}, "authorizer.class.name"),
        (ON, "expected User:ANONYMOUS in the list"),
        ({**LOCAL, "listeners": "GRPC://broker:9094"}, "inter.broker.listener.name"),
        ({**LOCAL, "listeners": "GRPC://localhost:9094,PLAINTEXT://broker:9092"}, "User:ANONYMOUS is every client"),
    ],
)
def test_authorizer_settings_that_protect_nothing_are_refused(properties: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(BrokerConfig, properties)


@pytest.mark.parametrize("super_user", ["User:CN=one", "User:CN=other"])
def test_a_controller_must_be_a_super_user(tmp_path: Path, super_user: str) -> None:
    stores = certificates.write_stores(tmp_path, certificates.server("one"))
    config = load(
        BrokerConfig,
        {
            **ON,
            "super.users": super_user,
            "listeners": "GRPC_SSL://broker:9094",
            "ssl.client.auth": "required",
            **stores.settings(),
        },
    )
    authorizer, tls = authorizer_of(config), ListenersTls(config)
    check_own_principal(authorizer, tls, must_be_super=False)
    if super_user == "User:CN=one":
        check_own_principal(authorizer, tls, must_be_super=True)
    else:
        with pytest.raises(ConfigError, match="User:CN=one, the principal of this controller"):
            check_own_principal(authorizer, tls, must_be_super=True)
