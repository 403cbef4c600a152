"""Tests that the Spark sink writes exactly once: killed drivers, lost checkpoint files, repeated tasks."""

from __future__ import annotations

import os
import pathlib
import time

import pytest

from klamm.admin import LedgerListing
from tests.support import spark_copy
from tests.support.copy_job import CopyJob
from tests.support.waiting import patience, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 2 * spark_copy.ROWS_PER_BATCH


def forget(job: CopyJob, *files: str) -> None:
    """Removes files from the checkpoint, as if the driver had died before writing them."""
    for name in files:
        (job.checkpoint / name).unlink()
        (job.checkpoint / pathlib.Path(name).parent / f".{pathlib.Path(name).name}.crc").unlink(missing_ok=True)


def is_prepared(ledger: LedgerListing | None) -> bool:
    return ledger is not None and any(part.prepared_ms > 0 for part in ledger.open_parts)


def test_rows_count_once_when_the_driver_is_killed_between_prepare_and_commit(job):
    """`make chaos` kills drivers at other moments, too (test_spark_windows.py)."""
    values = sorted(f"{number:04}" for number in range(ROWS))
    job.produce(*values)
    with job.driver(0.2) as process:

        def has_prepared() -> bool:
            assert process.poll() is None, job.log_path.read_text()
            return is_prepared(job.ledger())

        wait_until(has_prepared, lambda: f"waited in vain: {job.ledger()}", timeout_s=2 * patience())
    left = job.ledger()
    assert is_prepared(left), "killed between prepare and commit"
    assert left.committed_batch_id == -1
    job.check_read([])
    job.run_to_end()
    job.check_read(values)
    ledger = job.ledger()
    assert ledger.committed_batch_id == ROWS // spark_copy.ROWS_PER_BATCH - 1
    assert ledger.open_parts == ()
    assert len(job.read("read_uncommitted")) > len(values), "the killed run wrote what does not count"


def test_a_committed_batch_is_not_written_again_and_an_older_checkpoint_is_refused(job):
    job.produce(*(f"first {number}" for number in range(2 * spark_copy.ROWS_PER_BATCH)))
    job.run_to_end()
    once = job.read()
    forget(job, "commits/1")
    job.run_to_end()
    assert job.read("read_uncommitted") == once
    job.produce("second")
    job.run_to_end()
    job.check_read([*once, "second"])
    forget(job, "commits/1", "commits/2", "offsets/2")
    with pytest.raises(Exception, match=r"older checkpoint than its output. Restore .*`klamm ledgers delete spark "):
        job.run_to_end()
    job.check_read([*once, "second"])


def test_a_run_that_another_has_replaced_writes_nothing(job):
    job.produce("first", "second")
    query = job.writer().start()
    query.processAllAvailable()
    ledger = job.ledger()
    assert ledger is not None
    assert job.admin.register_run(ledger.ledger, "another", ledger.committed_batch_id + 1)
    job.produce("third", "fourth")
    with pytest.raises(Exception, match=r"Another run of the query has taken over.* another sinkId than 'spark'"):
        query.awaitTermination(patience())
    job.check_read(["first", "second"])


def test_a_task_that_runs_again_writes_its_rows_once(job):
    ledgers = job.admin.list_ledgers().keys()
    bootstrap, target, failed = job.cluster.bootstrap, job.target, str(job.directory / "failed")

    def fail_once(batches):
        from pyspark import TaskContext

        from klamm import Consumer, TopicPartition

        yield from batches
        if TaskContext.get().partitionId() == 1 and not os.path.exists(failed):
            pathlib.Path(failed).touch()
            with Consumer(bootstrap_servers=bootstrap) as consumer:
                written = TopicPartition(target, 1)
                while consumer.end_offsets([written])[written] == 0:
                    time.sleep(0.01)
            raise RuntimeError("planned")

    job.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5000")
    frame = job.spark.range(80_000, numPartitions=2)
    rows = frame.selectExpr("CAST(id AS STRING) AS value", "spark_partition_id() AS partition")
    save(job, rows.mapInArrow(fail_once, "value STRING, partition INT"))
    job.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert pathlib.Path(failed).exists()
    job.check_read([str(number) for number in range(80_000)])
    assert len(job.read("read_uncommitted")) > 80_000, "the attempt that failed wrote what does not count"
    assert job.admin.list_ledgers().keys() == ledgers, "a job's ledger goes with it"


def save(job, frame, **options) -> None:
    (
        frame.write.format("klamm").mode("append")
        .options(**{"kafka.bootstrap.servers": job.cluster.bootstrap, "topic": job.target, **options})
        .option("deliveryGuarantee", "exactly-once")
        .save()
    )  # fmt: skip


def test_a_failed_job_leaves_no_rows_and_no_ledger(job):
    ledgers = job.admin.list_ledgers().keys()
    frame = job.spark.range(20_000, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        save(job, frame.selectExpr("IF(value = '19999', CAST(1 / 0 AS STRING), value) AS value"))
    job.check_read([])
    assert job.admin.list_ledgers().keys() == ledgers


def test_a_write_in_foreach_batch_is_refused(job):
    job.produce("value")
    query = job.writer().foreachBatch(lambda frame, batch_id: save(job, frame)).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="not supported in foreachBatch"):
        query.awaitTermination()
    job.check_read([])


def test_an_exactly_once_write_with_acks_1_is_refused(job):
    with pytest.raises(Exception, match=r"needs enable\.idempotence"):
        save(job, job.spark.range(1).selectExpr("CAST(id AS STRING) AS value"), **{"kafka.acks": "1"})
