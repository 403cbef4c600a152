"""The table of Kafka's broker configs without effect is what Apache Kafka itself says."""

from __future__ import annotations

import json
import subprocess

import pytest

from klamm.setting import UpdateMode
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.configs_without_effect import SINCE_4_4, configs_without_effect
from tests.support import java_programs
from tests.support.waiting import patience

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

Row = tuple[str, str | None, str]
"""Type, default as text, update mode."""
ONLY_AT_LISTENERS = {"ssl.keystore.password", "ssl.truststore.password"}
"""Kafka changes these at run time with the prefix of a listener only. Klamm's settings of listeners are read-only."""


def of_kafka() -> dict[str, Row]:
    """Returns each config of Kafka's broker, by name."""
    run = subprocess.run(
        java_programs.command("klamm.BrokerConfigs"), capture_output=True, text=True, timeout=patience(), check=True
    )
    rows = map(json.loads, run.stdout.splitlines())
    return {name: (type_, default, mode) for name, type_, default, mode in rows}


def test_configs_without_effect_are_all_kafka_configs_that_a_broker_does_not_read() -> None:
    kafka = of_kafka()
    ours = configs_without_effect()
    assert len(kafka) > 300
    missing = SINCE_4_4 - kafka.keys()
    assert set(ours) - missing == kafka.keys() - BROKER_CONFIGS.keys()
    found: dict[str, Row] = {
        name: (our.type.value, our.default_text() if our.has_default else None, our.update_mode.value)
        for name, our in ours.items()
        if name not in missing
    }
    expected = {name: kafka[name] for name in found}
    for name in ONLY_AT_LISTENERS:
        assert expected[name][2] == UpdateMode.PER_BROKER.value
        expected[name] = (*expected[name][:2], UpdateMode.READ_ONLY.value)
    assert {name: row for name, row in found.items() if row != expected[name]} == {}
