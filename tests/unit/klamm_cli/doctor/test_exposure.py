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
def test_nothing_is_open_at_loopback_addresses(host: str) -> None:
    assert not told(listeners=f"GRPC://{host}:9094,PLAINTEXT://{host}:9092", metrics_port="9404")


def test_everything_is_open_at_other_addresses() -> None:
    encryption, authorizer, metrics = told(listeners="GRPC://b:9094,PLAINTEXT://127.0.0.1:9092", metrics_port="9404")
    assert ENCRYPTED in encryption
    assert "GRPC://b:9094" in encryption
    assert "PLAINTEXT" not in encryption
    assert EVERYTHING in authorizer
    assert METRICS in metrics


def test_a_server_on_its_way_to_security_is_told_until_it_is_there() -> None:
    secured = {"ssl.keystore.location": "/k.pem", "security.migration.enable": "true"}
    plain, migration, _ = told(listeners="GRPC://b:9094,SSL://b:9092", **secured)
    assert ENCRYPTED in plain
    assert migration == "f: security.migration.enable is on"


def test_what_is_encrypted_and_authorized_is_not_open() -> None:
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
