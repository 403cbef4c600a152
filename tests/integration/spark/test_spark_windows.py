"""Tests that a batch of Spark counts once, whatever the moment of a failure.

The numbers are those of the failure windows in the sink's design. A task dies with its rows written (1) or prepared
(2). A driver dies before the decision (3), after it (5), or with the cluster (4). A commit raises after the decision
(6), or loses its request or its answer (7). A driver returns after another has replaced it (8). A speculative copy of a
task prepares as well (9).
"""

from __future__ import annotations

import pathlib

import psutil
import pytest

from klamm.admin import LedgerListing
from tests.support import spark_copy
from tests.support.copy_job import CopyJob
from tests.support.dying_sink import Moment
from tests.support.spark_standalone import standalone_cluster
from tests.support.waiting import patience, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

VALUES = [f"{number:04}" for number in range(2 * spark_copy.ROWS_PER_BATCH)]


@pytest.fixture
def query(job: CopyJob) -> CopyJob:
    """Returns a query of two batches with two tasks each."""
    job.produce(*VALUES)
    return job


def sink(query: CopyJob, moment: Moment) -> dict[str, str]:
    return {"moment": moment, "marker": str(marker(query)), "cluster": str(query.cluster.pid)}


def marker(query: CopyJob) -> pathlib.Path:
    """Returns the path of a file that exists once the moment has passed."""
    return query.directory / "marker"


def has_prepared(query: CopyJob) -> bool:
    ledger = query.ledger()
    return ledger is not None and any(part.prepared_ms > 0 for part in ledger.open_parts)


@pytest.mark.parametrize("moment", [Moment.TASK_WROTE, Moment.TASK_PREPARED, Moment.DECIDED_TWICE])
def test_a_batch_counts_once_when_spark_runs_its_task_again(query, moment):
    """Covers windows 1, 2 and half of 7. Spark runs the task again."""
    query.run_to_end(sink(query, moment))
    assert marker(query).exists()
    query.check(VALUES)


@pytest.mark.parametrize("moment", [Moment.REQUEST_LOST, Moment.ANSWER_LOST])
def test_a_batch_counts_once_when_its_query_fails_and_runs_again(query, moment):
    """Covers windows 6 and 7. Spark has the batch aborted, which must not undo the decision, and ends the query."""
    with pytest.raises(Exception, match="planned"):
        query.run_to_end(sink(query, moment))
    query.run_to_end()
    query.check(VALUES)


@pytest.mark.chaos
@pytest.mark.parametrize(
    "moment",
    [
        Moment.DRIVER_DURING_TASKS,
        Moment.DRIVER_BEFORE_DECISION,
        Moment.DRIVER_AFTER_DECISION,
        Moment.DRIVER_AND_CLUSTER,
    ],
)
def test_a_batch_counts_once_when_its_driver_dies_and_another_one_runs(query, moment):
    """Covers windows 3, 5 and 4."""
    with query.driver(0.0, sink(query, moment)) as process:
        process.wait(3 * patience())
    assert marker(query).exists(), query.log_path.read_text()
    if moment is Moment.DRIVER_AND_CLUSTER:
        query.cluster.kill()  # the process is dead, and this forgets it
        query.cluster.start()
    query.run_to_end()
    query.check(VALUES)


@pytest.mark.chaos
def test_a_driver_that_was_paused_while_another_took_over_writes_nothing(query):
    """Covers window 8."""
    with query.driver(0.2) as process:
        wait_until(lambda: has_prepared(query), query.log_path.read_text, timeout_s=3 * patience())
        driver = next(child for child in psutil.Process(process.pid).children(True) if child.name() == "java")
        driver.suspend()
        query.run_to_end()
        driver.resume()
        assert process.wait(patience()) != 0
    query.check(VALUES)


@pytest.mark.chaos
def test_a_batch_counts_once_though_a_speculative_copy_of_its_task_prepares_as_well(query, tmp_path):
    """Covers window 9. Spark uses the answer of one copy and sends the other none.

    The decision aborts the records that the other copy has prepared. Spark copies tasks only on a cluster, and only to
    another host than that of the first copy.
    """
    hosts = ("127.0.0.1", "127.0.0.2")
    with standalone_cluster(tmp_path, hosts=hosts) as master:
        settings = {
            "spark.master": master,
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.multiplier": "1.1",
            "spark.sql.shuffle.partitions": "2",
        }
        with query.driver(0.0, {**sink(query, Moment.COPIED), **settings}) as process:

            def committed() -> LedgerListing | None:
                assert process.poll() is None, query.log_path.read_text()
                ledger = query.ledger()
                return ledger if ledger is not None and ledger.committed_batch_id >= 1 else None

            ledger = wait_until(committed, query.log_path.read_text, timeout_s=3 * patience(), pause_s=0.05)
            assert ledger is not None
    assert marker(query).exists(), "two attempts have prepared, and neither ended before the other had"
    assert ledger.open_parts == ()
    query.check(VALUES)
    assert len(query.read("read_uncommitted")) > len(VALUES), "both wrote"
