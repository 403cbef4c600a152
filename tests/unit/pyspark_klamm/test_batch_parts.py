"""Tests which batch a task writes, and how the driver combines all tasks' answers."""

from __future__ import annotations

import pickle

import pytest

from klamm import LedgerId, PreparedPart
from klamm.errors import ConfigError, IllegalStateError
from pyspark_klamm.batch_parts import (
    LedgerBatch,
    TaskOutput,
    common_batch,
    is_in_micro_batch,
    micro_batch,
    parts_to_commit,
)

PROPERTIES = {"sql.streaming.queryId": "query", "spark.jobGroup.id": "run", "streaming.sql.batchId": "7"}
BATCH = LedgerBatch(LedgerId("orders", "query"), "run", 7)


def part(task: int) -> PreparedPart:
    return PreparedPart(BATCH.ledger.part(task, 0), 1000 + task, 0)


def test_a_micro_batch_is_identified_by_sparks_local_properties():
    assert micro_batch("orders", PROPERTIES.get) == BATCH
    assert is_in_micro_batch(PROPERTIES.get)
    assert not is_in_micro_batch({"spark.jobGroup.id": "somebody's"}.get)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_that_is_missing_is_named(name):
    with pytest.raises(IllegalStateError, match=name):
        micro_batch("orders", {**PROPERTIES, name: None}.get)


def test_parts_of_all_tasks_that_wrote_something_are_committed():
    outputs = [TaskOutput(BATCH, part(0)), TaskOutput(BATCH, None), TaskOutput(BATCH, part(2))]
    travelled = pickle.loads(pickle.dumps(outputs))
    assert common_batch(travelled) == BATCH
    assert parts_to_commit(travelled) == [part(0), part(2)]


def test_more_tasks_than_a_ledger_decides_about_are_refused_with_what_to_do():
    outputs = [TaskOutput(BATCH, part(task)) for task in range(1_001)]
    assert len(parts_to_commit(outputs[:1_000]) or ()) == 1_000
    with pytest.raises(ConfigError, match=r"1001 tasks wrote rows .* use coalesce\(1000\)"):
        parts_to_commit(outputs)


def test_a_batch_without_rows_is_committed_without_parts():
    assert parts_to_commit([TaskOutput(BATCH, None)]) == []


def test_a_batch_that_is_already_committed_has_nothing_to_commit():
    assert parts_to_commit([TaskOutput(BATCH, None, counts_already=True)] * 2) is None


def test_a_batch_is_not_committed_without_some_of_its_tasks():
    with pytest.raises(IllegalStateError, match="1 of 2 tasks returned no answer"):
        parts_to_commit([TaskOutput(BATCH, part(0)), None])


def test_tasks_that_disagree_about_the_batch_are_an_error():
    with pytest.raises(IllegalStateError, match="others wrote rows of the batch"):
        parts_to_commit([TaskOutput(BATCH, part(0)), TaskOutput(BATCH, None, counts_already=True)])
    with pytest.raises(IllegalStateError, match="different batches"):
        common_batch([TaskOutput(BATCH, None), TaskOutput(BATCH._replace(run_id="other"), None)])


def test_failed_tasks_give_no_batch():
    assert common_batch([None, None]) is None
    assert common_batch([None, TaskOutput(BATCH, part(1))]) == BATCH
