"""Tests the coordinator's configuration: names, defaults, contradictions."""

from __future__ import annotations

import dataclasses

import pytest

from klamm.errors import ConfigError
from klamm.setting import definitions
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.groups.settings import GroupSettings
from klamm_coordinator.transaction_shard.settings import TransactionSettings
from klamm_server.config.server_config import load

WANTED = {"node.id": "1"}

KAFKA_DEFAULTS = {
    "group.min.session.timeout.ms": 6_000,
    "group.max.session.timeout.ms": 1_800_000,
    "group.initial.rebalance.delay.ms": 3_000,
    "group.max.size": 2_147_483_647,
    "offset.metadata.max.bytes": 4_096,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 600_000,
    "offsets.commit.timeout.ms": 5_000,
    "offsets.load.buffer.size": 5_242_880,
}


@pytest.mark.parametrize("name", KAFKA_DEFAULTS)
def test_the_coordinator_config_has_kafkas_defaults(name):
    assert definitions(CoordinatorConfig)[name].default == KAFKA_DEFAULTS[name]


def test_settings_of_the_file_reach_the_core():
    config = load(CoordinatorConfig, {**WANTED, "group.max.size": "7", "offsets.retention.minutes": "2"})

    assert (config.group_size_max, config.offsets_retention_ms) == (7, 120_000)


def test_without_a_file_the_core_has_its_own_defaults():
    config = load(CoordinatorConfig, WANTED)
    for settings in (GroupSettings(), TransactionSettings()):
        assert {field.name: getattr(config, field.name) for field in dataclasses.fields(settings)} == vars(settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"group.max.siz": "7"}, "group.max.size"),
        ({"group.max.size": "0"}, "group.max.size"),
        ({"offset.metadata.max.bytes": "40000"}, "offset.metadata.max.bytes"),
        ({"group.min.session.timeout.ms": "5000", "group.max.session.timeout.ms": "4999"}, "group.min.session"),
        ({"broker.heartbeat.interval.ms": "5000"}, "broker.heartbeat.interval.ms"),
        ({"controller.quorum.bootstrap.servers": "nowhere"}, "controller.quorum.bootstrap.servers"),
        ({"controller.quorum.bootstrap.servers": ""}, "controller.quorum.bootstrap.servers"),
    ],
)
def test_an_invalid_coordinator_config_is_refused_and_named(settings, named):
    with pytest.raises(ConfigError, match=named):
        load(CoordinatorConfig, {**WANTED, **settings})
