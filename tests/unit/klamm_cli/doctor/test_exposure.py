"""Tests the checks for settings that expose a server to others."""

from __future__ import annotations

import pytest

from klamm_cli.doctor.exposure import check_exposure
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load

BROKER = {"node.id": "4", "controller.quorum.bootstrap.servers": "h:9093", "log.dirs": "/data"}
AUTHORIZER = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:ANONYMOUS"}
ENCRYPTED, EVERYTHING, METRICS = "not encrypted", "may do everything", "metrics, which name"


def told(**settings: str) -> list[str]:
    config = load(BrokerConfig, {**BROKER, **{name.replace("_", "."): text for name, text in settings.items()}})
    return [each.text for each in check_exposure("f", config)]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_a_server_at_loopback_addresses_is_not_exposed(host: str) -> None:
    assert not told(listeners=f"GRPC://{host}:9094,PLAINTEXT://{host}:9092", metrics_port="9404")


def test_an_unsecured_server_at_another_address_is_reported_as_exposed() -> None:
    encryption, authorizer, metrics = told(listeners="GRPC://b:9094,PLAINTEXT://127.0.0.1:9092", metrics_port="9404")
    assert ENCRYPTED in encryption
    assert "GRPC://b:9094" in encryption
    assert "PLAINTEXT" not in encryption
    assert EVERYTHING in authorizer
    assert METRICS in metrics


def test_a_server_in_a_security_migration_is_reported() -> None:
    secured = {"ssl.keystore.location": "/k.pem", "security.migration.enable": "true"}
    plain, migration, _ = told(listeners="GRPC://b:9094,SSL://b:9092", **secured)
    assert ENCRYPTED in plain
    assert migration == "f: security.migration.enable is on"


def test_an_encrypted_and_authorized_server_is_not_exposed() -> None:
    secured = {
        "listeners": "GRPC://127.0.0.1:9094,SSL://b:9092",
        "ssl.keystore.location": "/k.pem",
        "ssl.truststore.location": "/t.pem",
        "ssl.client.auth": "required",
        "metrics.port": "9404",
        **AUTHORIZER,
    }
    assert not told(**secured)
    (metrics,) = told(**secured, metrics_host="0.0.0.0")
    assert METRICS in metrics
