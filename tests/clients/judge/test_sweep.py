"""Klamm and Apache Kafka are asked the same, odd arguments included: a table says where they differ, and why."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from klamm_broker.kafka.api import ApiKey
from tests.clients.judge.known_differences import KNOWN, check
from tests.clients.judge.side import Side
from tests.clients.judge.sweep import CASES, common_versions, observe

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def versions(sides: Sides) -> Mapping[ApiKey, range]:
    return common_versions(*sides)


def test_every_api_of_both_servers_has_cases(versions: Mapping[ApiKey, range]) -> None:
    assert versions.keys() == CASES.keys()


@pytest.mark.parametrize("api_key", CASES, ids=lambda api_key: api_key.name)
def test_answers_differ_from_kafkas_only_as_the_table_says(
    sides: Sides, versions: Mapping[ApiKey, range], api_key: ApiKey
) -> None:
    before = [side.shared_state() for side in sides]
    unexpected, vanished = check(api_key, observe(*sides, api_key, versions[api_key]), KNOWN)
    for side in sides:
        side.delete_own_topics()
    assert not unexpected, "new differences:\n" + "\n".join(unexpected)
    assert not vanished, "known differences that are there no more:\n" + "\n".join(vanished)
    assert [side.shared_state() for side in sides] == before, "a question changed what others ask about"
