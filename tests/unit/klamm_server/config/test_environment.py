"""Tests settings from environment variables."""

from __future__ import annotations

from collections import Counter

import pytest

from klamm.errors import ConfigError
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.environment import environment_properties, variable, without_settings
from klamm_server.config.server_config import ServiceConfig, accepted_configs

NAMES = ("node.id", "min.insync.replicas")


def test_the_variable_of_a_setting_is_its_name_in_capitals() -> None:
    environment = {"KLAMM_NODE_ID": "1", "KLAMM_MIN_INSYNC_REPLICAS": "2", "HOME": "/"}
    environment |= {"KLAMM_BOOTSTRAP": "h:1", "KLAMM_CORE": "pure"}
    assert environment_properties(environment, NAMES) == {"node.id": "1", "min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("KLAMM_MIN_INSYNC_REPLICA", "; did you mean KLAMM_MIN_INSYNC_REPLICAS?"),
        ("KLAMM_XYZZY", ""),
        ("KLAMM_ZOOKEEPER_SESSION_TIMEOUT_MS", "; remove it, because Klamm has no ZooKeeper"),
    ],
)
def test_a_variable_of_no_setting_is_refused_with_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        environment_properties({name: "2"}, NAMES)
    assert str(caught.value) == f"unknown configuration in the environment: {name}{hint}"


def test_more_setting_names_are_loaded_only_for_a_variable_that_is_unknown() -> None:
    asked = []

    def more() -> list[str]:
        asked.append("more")
        return ["num.io.threads"]

    assert environment_properties({"KLAMM_NODE_ID": "1", "KLAMM_BOOTSTRAP": "h:1"}, NAMES, more) == {"node.id": "1"}
    assert not asked
    assert environment_properties({"KLAMM_NUM_IO_THREADS": "8"}, NAMES, more) == {"num.io.threads": "8"}
    with pytest.raises(ConfigError, match=r"KLAMM_NUM_IO_THREAD; did you mean KLAMM_NUM_IO_THREADS\?$"):
        environment_properties({"KLAMM_NUM_IO_THREAD": "8"}, NAMES, more)


@pytest.mark.parametrize("config_class", [BrokerConfig, ControllerConfig, CoordinatorConfig])
def test_no_two_settings_share_a_variable(config_class: type[ServiceConfig]) -> None:
    variables = Counter(variable(name) for name in accepted_configs(config_class, {}))
    assert [name for name, count in variables.items() if count > 1] == []


def test_the_environment_of_a_started_server_has_no_settings_of_its_parent() -> None:
    environment = {"KLAMM_NODE_ID": "1", "PATH": "/bin", "KLAMM_BOOTSTRAP": "h:1"}
    assert without_settings(environment) == {"PATH": "/bin", "KLAMM_BOOTSTRAP": "h:1"}
