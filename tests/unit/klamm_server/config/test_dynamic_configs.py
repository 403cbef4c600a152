"""Tests settings that change at run time: the values in force, and the refused changes."""

from __future__ import annotations

import pytest

from klamm.errors import ConfigError
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.dynamic_configs import check_step, in_force, own_config
from klamm_server.config.server_config import load

NAME = "log.cleaner.backoff.ms"


@pytest.mark.parametrize(
    ("of_broker", "of_all", "own", "backoff_ms"),
    [
        ({}, {}, {}, 15_000),
        ({}, {}, {NAME: "3"}, 3),
        ({}, {NAME: "2"}, {NAME: "3"}, 2),
        ({NAME: "1"}, {NAME: "2"}, {NAME: "3"}, 1),
    ],
)
def test_the_config_layer_with_the_highest_precedence_is_effective(
    of_broker: dict[str, str], of_all: dict[str, str], own: dict[str, str], backoff_ms: int
) -> None:
    config = load(BrokerConfig, {"node.id": "1", **own})
    assert in_force(config, of_broker, of_all).log_cleaner_backoff_ms == backoff_ms


def test_read_only_and_unknown_dynamic_configs_are_ignored() -> None:
    config = load(BrokerConfig, {"node.id": "1"})
    layer = {"node.id": "7", "log.retention.ms": "5", "of.the.future": "x", "max.parked.requests": "none"}
    assert in_force(config, layer) == config


def test_a_dynamic_value_that_is_invalid_or_contradicts_another_is_refused() -> None:
    config = load(BrokerConfig, {"node.id": "1", "log.cleaner.threads": "2"})
    with pytest.raises(ConfigError, match=r"^log\.cleaner\.threads: '0' is not valid, expected at least 1$"):
        in_force(config, {"log.cleaner.threads": "0"})
    with pytest.raises(ConfigError, match=r"expected at least 1048576 for each of log\.cleaner\.threads=2$"):
        in_force(config, {"log.cleaner.dedupe.buffer.size": "1048576"})


@pytest.mark.parametrize("name", ["log.cleaner.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir"])
def test_a_number_of_threads_doubles_or_halves_at_most(name: str) -> None:
    five = load(BrokerConfig, {"node.id": "1", name: "5"})
    for count in (2, 5, 10):
        check_step(five, load(BrokerConfig, {"node.id": "1", name: str(count)}))
    for count in (1, 11):
        with pytest.raises(
            ConfigError,
            match=rf"{count} is not valid, expected 2 to 10, because the current value"
            r" is 5",
        ):
            check_step(five, load(BrokerConfig, {"node.id": "1", name: str(count)}))


def test_a_registered_brokers_config_is_parsed_without_unknown_names() -> None:
    config = own_config(3, {"log.cleaner.threads": "2", "of.the.future": "x", "log.retention.ms": "5"})
    assert (config.node_id, config.log_cleaner_threads) == (3, 2)
    with pytest.raises(ConfigError, match=r"^log\.cleaner\.threads"):
        own_config(3, {"log.cleaner.threads": "two"})
