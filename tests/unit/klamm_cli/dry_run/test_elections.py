"""Tests which elections a dry run expects to succeed, by the controller's rules."""

from __future__ import annotations

import pytest

from klamm.admin import ElectionType
from klamm_cli.dry_run.elections import election_error
from tests.support.status_world import partition

ALL = (1, 2, 3)
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


@pytest.mark.parametrize(
    ("kind", "described", "active", "code"),
    [
        (PREFERRED, partition(0, leader=2), ALL, None),
        (PREFERRED, partition(0, leader=1), ALL, "ELECTION_NOT_NEEDED"),
        (PREFERRED, partition(0, leader=2, isr=(2, 3)), ALL, "PREFERRED_LEADER_NOT_AVAILABLE"),
        (PREFERRED, partition(0, leader=2), (2, 3), "PREFERRED_LEADER_NOT_AVAILABLE"),
        (PREFERRED, partition(0, leader=2, offline_replicas=(1,)), ALL, "PREFERRED_LEADER_NOT_AVAILABLE"),
        (PREFERRED, partition(0, leader=2, resigned_replicas=(1,)), ALL, "PREFERRED_LEADER_NOT_AVAILABLE"),
        (PREFERRED, partition(0, leader=2, resigned_replicas=ALL), ALL, None),
        (PREFERRED, partition(0, leader=-1, isr=(), elr=(1, 2)), ALL, None),
        (UNCLEAN, partition(0, leader=2), ALL, "ELECTION_NOT_NEEDED"),
        (UNCLEAN, partition(0, leader=-1, isr=(1,)), (3,), None),
        (UNCLEAN, partition(0, leader=-1, isr=(1,)), (), "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
        (UNCLEAN, None, ALL, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_an_election_has_the_error_that_the_controller_would_give(kind, described, active, code):
    error = election_error("orders", 0, described, kind, active)
    assert (error and error.code.name) == code
