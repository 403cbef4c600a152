"""Tests the check of the servers' answers about authorization."""

from __future__ import annotations

import pytest

from klamm_cli.doctor.finding import Finding, Level
from klamm_cli.doctor.server_checks import check_servers
from klamm_cli.doctor.server_probe import ProbeAnswer, ProbeTarget


def found(*has_authorizer: bool | None) -> list[Finding]:
    answers = [
        ProbeAnswer(target=ProbeTarget(name=f"broker {number}", host="localhost", port=1), has_authorizer=each)
        for number, each in enumerate(has_authorizer, start=1)
    ]
    return [
        check_server for check_server in check_servers(answers, ["localhost"]) if check_server.check == "authorization"
    ]


@pytest.mark.parametrize(
    ("has_authorizer", "levels"),
    [
        ([False, False], []),
        ([None, None], []),
        ([True, True], [Level.OK]),
        ([True, None], [Level.OK]),
        ([True, False], [Level.PROBLEM]),
    ],
)
def test_an_authorizer_on_only_some_servers_is_a_problem(
    has_authorizer: list[bool | None], levels: list[Level]
) -> None:
    assert [each.level for each in found(*has_authorizer)] == levels


def test_servers_without_an_authorizer_are_named() -> None:
    (problem,) = found(True, False, True)
    assert "at broker 2:" in problem.text


def test_servers_in_a_security_migration_are_named() -> None:
    answers = [
        ProbeAnswer(target=ProbeTarget(name=f"broker {number}", host="localhost", port=1), is_migrating=number == 2)
        for number in (1, 2)
    ]
    (found,) = [
        check_server for check_server in check_servers(answers, ["localhost"]) if check_server.check == "migration"
    ]
    assert (found.level, found.text) == (Level.WARNING, "security.migration.enable is on at broker 2")
