"""Tests that the configuration in force on a broker follows the metadata."""

from __future__ import annotations

import dataclasses

import pytest

from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER
from klamm_broker.metadata.dynamic_config import DynamicConfig
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.metadata.image import MetadataImage

NAME = "log.cleaner.backoff.ms"


def image(**configs: dict[str, str]) -> MetadataImage:
    """An image with the configs of each broker; those of `all` are the default of all brokers."""
    by_resource = {
        (CONFIG_RESOURCE_TYPE_BROKER, "" if name == "all" else name.removeprefix("broker_")): values
        for name, values in configs.items()
    }
    return dataclasses.replace(MetadataImage.empty(), configs=by_resource)


class Part:
    """A part of a broker that records the values it sees."""

    def __init__(self, dynamic: DynamicConfig) -> None:
        self.seen: list[int] = []
        dynamic.add(lambda config: self.seen.append(config.log_cleaner_backoff_ms))


@pytest.fixture
def dynamic() -> DynamicConfig:
    return DynamicConfig(load(BrokerConfig, {"node.id": "1", NAME: "9"}))


def test_listeners_of_a_config_are_called_only_if_its_effective_value_changes(dynamic: DynamicConfig) -> None:
    part = Part(dynamic)
    assert dynamic.current.log_cleaner_backoff_ms == 9
    dynamic.apply(image(all={NAME: "8"}))
    dynamic.apply(image(all={NAME: "8"}, broker_2={NAME: "5"}))
    dynamic.apply(image(all={NAME: "8", "log.retention.ms": "1"}))
    dynamic.apply(image(all={NAME: "8"}, broker_1={NAME: "7"}))
    dynamic.apply(image(broker_1={NAME: "7"}))
    dynamic.apply(image())
    assert part.seen == [8, 7, 9]
    assert dynamic.current.log_cleaner_backoff_ms == 9


def test_an_invalid_dynamic_value_is_ignored_and_logged(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    dynamic.apply(image(broker_1={NAME: "7", "log.cleaner.threads": "-5"}))
    assert (dynamic.current.log_cleaner_backoff_ms, dynamic.current.log_cleaner_threads) == (7, 1)
    assert "log.cleaner.threads: '-5' is not valid, expected at least 1" in caplog.text


def test_dynamic_values_that_contradict_each_other_are_not_applied(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    part = Part(dynamic)
    dynamic.apply(image(broker_1={NAME: "7"}))
    dynamic.apply(image(broker_1={NAME: "6", "log.cleaner.threads": "1000"}))
    assert part.seen == [7]
    assert "expected at least 1048576 for each of log.cleaner.threads=1000" in caplog.text
