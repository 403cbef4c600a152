"""Tests the refusals of a controller that a dry run of moves foresees."""

from __future__ import annotations

import pytest

from klamm.model import TopicPartition
from klamm_cli.dry_run.reassignments import cancellation_errors
from tests.support.status_world import partition

TP = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("described", "code"),
    [
        (partition(0, replicas=(3, 1), isr=(1,), adding_replicas=(3,), removing_replicas=(1,)), None),
        (partition(0, replicas=(1, 2)), "NO_REASSIGNMENT_IN_PROGRESS"),
        (None, "UNKNOWN_TOPIC_OR_PARTITION"),
        (partition(0, replicas=(3, 1), isr=(3,), adding_replicas=(3,)), "INVALID_REPLICA_ASSIGNMENT"),
        (partition(0, replicas=(3, 1), isr=(3,), elr=(1,), adding_replicas=(3,)), None),
        (partition(0, -1, (3, 1), (), last_known_elr=(3,), adding_replicas=(3,)), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_a_cancellation_has_the_error_that_the_controller_would_give(described, code):
    known = {} if described is None else {TP: described}
    assert [error.code.name for error in cancellation_errors([TP], known)] == ([] if code is None else [code])
