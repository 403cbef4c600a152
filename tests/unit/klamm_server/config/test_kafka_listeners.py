"""Tests the listeners of a configuration that was written for Kafka."""

from __future__ import annotations

import logging

import pytest

from klamm.errors import ConfigError
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.dynamic_configs import in_force, own_config
from klamm_server.config.server_config import ServiceConfig, load, log_effective
from klamm_server.main import main
from tests.support.kafka_stock_files import STOCK_FILES, as_text

COMBINED = STOCK_FILES["server.properties"]
KINDS: dict[str, type[ServiceConfig]] = {
    "broker": BrokerConfig,
    "controller": ControllerConfig,
    "coordinator": CoordinatorConfig,
}


def listeners(kind: str, properties: dict[str, str]) -> tuple[list[str], list[str]]:
    """Returns the listeners of the server and their advertised addresses, as PROTOCOL host:port."""
    resolved = load(KINDS[kind], properties).resolved_listeners()
    bound, advertised = (
        [f"{one.protocol_name} {one.host}:{one.port}" for one in each] for each in (resolved.bound, resolved.advertised)
    )
    return bound, advertised


@pytest.mark.parametrize(
    ("file", "kind", "bound", "advertised"),
    [
        (
            *("server.properties", "broker"),
            ["KAFKA :9092", "GRPC :9094"],
            ["KAFKA localhost:9092", "GRPC localhost:9094"],
        ),
        ("server.properties", "controller", ["GRPC :9093"], ["GRPC localhost:9093"]),
        ("server.properties", "coordinator", ["GRPC :9095"], ["GRPC localhost:9095"]),
        (
            *("broker.properties", "broker"),
            ["KAFKA localhost:9092", "GRPC localhost:9094"],
            ["KAFKA localhost:9092", "GRPC localhost:9094"],
        ),
        ("broker.properties", "coordinator", ["GRPC localhost:9095"], ["GRPC localhost:9095"]),
        ("controller.properties", "controller", ["GRPC :9093"], ["GRPC localhost:9093"]),
    ],
)
def test_kafkas_own_files_start_a_server(
    file: str, kind: str, bound: list[str], advertised: list[str], tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / file
    path.write_text(as_text(STOCK_FILES[file]))

    status = main(f"klamm-{kind}", KINDS[kind], pytest.fail, ["--config", str(path), "--show-config"])

    assert status == 0, capsys.readouterr().err
    assert listeners(kind, dict(STOCK_FILES[file])) == (bound, advertised)


def test_the_servers_of_one_kafka_file_have_grpc_listeners_with_one_name() -> None:
    """Otherwise a broker could not give its clients the address of the controller."""
    for config in KINDS.values():
        advertised = load(config, COMBINED).resolved_listeners().advertised
        assert [one.name for one in advertised if one.protocol_name == "GRPC"] == ["GRPC"]


def test_a_controller_whose_file_names_only_itself_does_not_join_a_quorum() -> None:
    for file in ("server.properties", "controller.properties"):
        config = load(ControllerConfig, STOCK_FILES[file])
        assert not config.joins_a_quorum
        assert config.contacts() == []


def test_a_controller_whose_file_names_another_joins_its_quorum() -> None:
    given = {
        **COMBINED,
        "cluster.id": "c",
        "controller.quorum.bootstrap.servers": "localhost:9093,other:9093",
    }
    config = load(ControllerConfig, given)
    assert config.joins_a_quorum
    assert config.contacts() == ["localhost:9093", "other:9093"]
    with pytest.raises(ConfigError, match=r"cluster\.id is not set"):
        load(ControllerConfig, {**given, "cluster.id": ""})


def test_a_controllers_listener_becomes_grpc_with_the_security_of_the_file() -> None:
    spoken = {}
    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT", "GRPC"):
        given = {**COMBINED, "listener.security.protocol.map": f"CONTROLLER:{protocol}"}
        given |= {"listeners": "CONTROLLER://localhost:9093", "advertised.listeners": "CONTROLLER://localhost:9093"}
        config = ControllerConfig(**_fields(given))
        spoken[protocol] = config.resolved_listeners().bound[0].protocol_name
    assert spoken == {"PLAINTEXT": "GRPC", "SASL_PLAINTEXT": "GRPC_SASL_PLAINTEXT", "GRPC": "GRPC"}


def _fields(given: dict[str, str]) -> dict[str, object]:
    """Returns the fields that set where a controller listens, without the checks of a whole configuration."""
    split = {name: tuple(text.split(",")) for name, text in given.items()}
    return {
        "node_id": 1,
        "listeners": split["listeners"],
        "advertised_listeners": split["advertised.listeners"],
        "listener_security_protocol_map": split["listener.security.protocol.map"],
        "controller_listener_names": split["controller.listener.names"],
        "process_roles": split["process.roles"],
    }


def test_a_grpc_listener_in_the_file_replaces_the_added_one() -> None:
    given = {
        **COMBINED,
        "listeners": "PLAINTEXT://:9092,GRPC://:7000,CONTROLLER://:9093",
        "advertised.listeners": "PLAINTEXT://h:9092,GRPC://h:7000,CONTROLLER://h:9093",
    }
    assert listeners("broker", given) == (["KAFKA :9092", "GRPC :7000"], ["KAFKA h:9092", "GRPC h:7000"])


def test_no_plaintext_listener_is_added_to_a_secured_one() -> None:
    given = {**COMBINED, "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT"}
    with pytest.raises(ConfigError, match=r"no gRPC listener, expected a GRPC://host:port besides 'PLAINTEXT://:9092'"):
        load(BrokerConfig, given)


def test_without_process_roles_no_grpc_listener_is_added() -> None:
    given = {name: text for name, text in COMBINED.items() if name != "process.roles"}
    with pytest.raises(ConfigError, match="no gRPC listener, expected a GRPC://host:port besides"):
        load(BrokerConfig, given)


def test_a_file_without_a_listener_of_the_server_gives_it_its_default() -> None:
    assert listeners("controller", dict(STOCK_FILES["broker.properties"])) == (
        ["GRPC localhost:9093"],
        ["GRPC localhost:9093"],
    )
    assert listeners("broker", dict(STOCK_FILES["controller.properties"]))[0] == ["GRPC localhost:9094"]


@pytest.mark.parametrize("kind", KINDS)
def test_grpc_listeners_stay_unchanged_with_process_roles(kind: str) -> None:
    given = {"node.id": "1", "process.roles": "broker,controller", "listeners": "GRPC://localhost:7000"}
    assert listeners(kind, given)[0] == ["GRPC localhost:7000"]
    assert listeners(kind, {**given, "controller.listener.names": "CONTROLLER"})[0] == ["GRPC localhost:7000"]


def test_a_file_may_have_settings_of_another_servers_listener() -> None:
    given = {
        **COMBINED,
        "listener.name.controller.ssl.client.auth": "none",
        "listener.name.plaintext.max.connections": "9",
    }
    for kind in KINDS.values():
        assert load(kind, given).node_id == 1


def test_a_controller_understands_a_registered_broker_with_such_a_file() -> None:
    """The controller checks a change at run time against the broker's own file, which the broker has registered."""
    own = own_config(1, load(BrokerConfig, COMBINED).originals)
    assert in_force(own, {"log.cleaner.threads": "2"}).log_cleaner_threads == 2


def test_the_log_names_the_listeners_and_the_configs_without_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_effective(load(BrokerConfig, COMBINED))
    assert (
        "process.roles is set, as in a configuration for Kafka: the broker has PLAINTEXT (KAFKA) at :9092, GRPC (GRPC)"
        " at :9094" in caplog.messages
    )
    assert (
        "these configs were set and have no effect here, because a server of Klamm handles all requests in one event"
        " loop: num.io.threads, num.network.threads" in caplog.messages
    )
