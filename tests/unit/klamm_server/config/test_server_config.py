"""Tests loading a service's configuration, its refusals, and the line in each error."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import ClassVar

import pytest

from klamm.errors import ConfigError
from klamm.setting import Setting, again, integer, text
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.member_config import MemberConfig
from klamm_server.config.server_config import (
    ServiceConfig,
    effective,
    known_configs,
    load,
    log_effective,
    parse_server,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExampleConfig(ServiceConfig):
    ALSO_KNOWN: ClassVar[Mapping[str, Setting]] = {"log.segment.bytes": BROKER_CONFIGS["log.segment.bytes"]}

    heartbeat_interval_ms: int = again(MemberConfig, "broker.heartbeat.interval.ms")
    session_timeout_ms: int = again(MemberConfig, "broker.session.timeout.ms")
    password: str = text("", name="store.password", doc="A secret.", sensitive=True)
    batch: int = integer(3, at_least=1, doc="How many.", sensitive=True)

    def validate(self) -> None:
        ServiceConfig.validate(self)
        if self.session_timeout_ms < 2 * self.heartbeat_interval_ms:
            raise ConfigError(
                f"broker.session.timeout.ms={self.session_timeout_ms} must be at least twice"
                f" broker.heartbeat.interval.ms={self.heartbeat_interval_ms}"
            )


def _load(**properties: str) -> ExampleConfig:
    return load(ExampleConfig, {"node.id": "1", **{name.replace("_", "."): v for name, v in properties.items()}})


def test_config_values_are_typed_and_missing_ones_get_kafkas_defaults() -> None:
    config = _load(broker_heartbeat_interval_ms="500", log_segment_bytes="2000000")
    assert config.node_id == 1
    assert config.heartbeat_interval_ms == 500
    assert config.session_timeout_ms == 9_000
    assert config.originals == {
        "node.id": "1",
        "broker.heartbeat.interval.ms": "500",
        "log.segment.bytes": "2000000",
    }


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"node_id": "one"}, "node.id: 'one' is not valid, expected a whole number of 32 bits"),
        ({"node_id": "-1"}, "node.id: '-1' is not valid, expected at least 0"),
        (
            {"broker_session_timeout": "1"},
            "unknown configuration broker.session.timeout; did you mean broker.session.timeout.ms?",
        ),
        ({"xyzzy": "1"}, "unknown configuration xyzzy"),
        ({"log_segment_bytes": "7"}, "log.segment.bytes: '7' is not valid, expected at least 1048576"),
        (
            {"broker_session_timeout_ms": "3999"},
            "broker.session.timeout.ms=3999 must be at least twice broker.heartbeat.interval.ms=2000",
        ),
        ({"listeners": ""}, "listeners: the list is empty, expected at least one NAME://host:port"),
        ({"listeners": "localhost:9094"}, "listeners: 'localhost:9094' is not valid, expected NAME://host:port"),
        ({"listeners": "GRPC://h:70000"}, "listeners: 'GRPC://h:70000' is not valid, expected NAME://host:port"),
        (
            {"listeners": "GRPC://:9094", "advertised_listeners": "GRPC://0.0.0.0:9094"},
            "advertised.listeners: '0.0.0.0' is not an address that other hosts can connect to",
        ),
        ({"metrics_port": "65536"}, "metrics.port: '65536' is not valid, expected 0 to 65535"),
        ({"batch": "0"}, "batch: the value given is not valid, expected at least 1"),
    ],
)
def test_a_refusal_is_one_line_naming_what_is_wrong(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(**properties)
    assert str(caught.value) == message


def test_a_missing_required_config_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^node\.id is not set: The id of this server"):
        load(ExampleConfig, {})


@pytest.mark.parametrize("listeners", ["GRPC://:9094", "GRPC://0.0.0.0:9094", "GRPC://[::]:9094"])
def test_listening_everywhere_needs_an_advertised_address(listeners: str) -> None:
    with pytest.raises(ConfigError, match=r"^advertised\.listeners is not set"):
        _load(listeners=listeners)
    config = _load(listeners=listeners, advertised_listeners="GRPC://broker1:19094")
    (dialled,) = config.resolved_listeners().dialled({"GRPC": 9094})
    assert dialled.address == ("broker1", 19094)


def test_a_server_address_must_be_a_host_and_a_port() -> None:
    assert parse_server("controllers", "c1:9093") == ("c1", 9093)
    assert parse_server("controllers", "[::1]:9093") == ("[::1]", 9093)
    for wrong in ("c1", "c1:0", "c1:65536", ":9093", "c1:x"):
        with pytest.raises(ConfigError, match=r"^controllers: .* expected host:port$"):
            parse_server("controllers", wrong)


def test_the_known_configs_are_the_fields_and_the_broker_configs() -> None:
    known = known_configs(ExampleConfig)
    assert {"node.id", "listeners", "store.password", "log.segment.bytes"} <= known.keys()
    assert known["node.id"] == BROKER_CONFIGS["node.id"]


def test_the_effective_config_shows_everything_but_secrets(caplog: pytest.LogCaptureFixture) -> None:
    config = load(ExampleConfig, {"node.id": "1", "store.password": "hunter2"})
    texts = effective(config)
    assert list(texts) == sorted(known_configs(ExampleConfig))
    assert texts["store.password"] == "[hidden]"
    assert texts["broker.session.timeout.ms"] == "9000"
    assert texts["log.segment.bytes"] == "1073741824"
    with caplog.at_level(logging.INFO):
        log_effective(config)
    assert "config node.id=1 (set)" in caplog.messages
    assert "config metrics.port=0" in caplog.messages
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ({}, "127.0.0.1"),
        ({"listeners": "KAFKA://0.0.0.0:1,GRPC://192.0.2.1:2", "advertised.listeners": "KAFKA://a:1"}, "192.0.2.1"),
        ({"metrics.host": "::1"}, "::1"),
        ({"metrics.host": ""}, ""),
    ],
)
def test_the_metrics_host_is_that_of_the_grpc_listener_unless_it_is_set(settings: dict[str, str], host: str) -> None:
    given = {"node.id": "1", "listeners": "GRPC://127.0.0.1:0", "store.password": "x", **settings}
    assert load(ExampleConfig, given).resolved_metrics_host() == host
