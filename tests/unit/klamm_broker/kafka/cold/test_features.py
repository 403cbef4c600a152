"""Tests that a feature can be set to the level it has, and to no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.cluster import ClusterApis
from klamm_broker.kafka.cold.features import LEVELS, why_refused
from tests.support.cold_requests import answer_of

CLUSTER = ClusterApis(None, None, None)
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update(*updates: tuple[str, int, int], version: int) -> Any:
    fields = {
        "timeout": 1_000,
        "validate_only": False,
        "feature_updates": [
            {"feature": name, "max_version_level": level, "allow_downgrade": kind > UPGRADE, "upgrade_type": kind}
            for name, level, kind in updates
        ],
    }
    return asyncio.run(answer_of(CLUSTER.update_features, ApiKey.UPDATE_FEATURES, version, fields))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_feature_update_to_the_current_level_succeeds(version: int) -> None:
    answer = update(*((name, level, UPGRADE) for name, level in LEVELS.items()), version=version)
    assert (answer.error_code, answer.error_message) == (0, None)
    if version < 2:
        assert {result.feature: int(result.error_code) for result in answer.results} == dict.fromkeys(LEVELS, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_one_refused_feature_update_fails_the_whole_request(version: int) -> None:
    answer = update(("group.version", 1, UPGRADE), ("no.such.version", 1, UPGRADE), version=version)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "no.such.version" in answer.error_message
    assert getattr(answer, "results", ()) == ()


@pytest.mark.parametrize(
    ("level", "kind", "why"),
    [
        (1, UPGRADE, "without setting the upgrade type"),
        (1, SAFE_DOWNGRADE, "only supports version 2"),
        (0, UNSAFE_DOWNGRADE, "only supports version 2"),
        (3, UPGRADE, "only supports version 2"),
        (-1, SAFE_DOWNGRADE, "cannot be less than 0"),
        (2, 0, "upgrade type"),
        (2, 9, "upgrade type"),
    ],
)
def test_a_feature_update_to_another_level_is_refused(level: int, kind: int, why: str) -> None:
    assert why in why_refused("transaction.version", level, kind)
    assert why_refused("transaction.version", 2, SAFE_DOWNGRADE) == ""
