"""Every moment at which a batch of Spark can be hit, and that it counts once all the same.

The numbers are those of the failure windows that the sink is designed by: a task that dies with its rows written (1) or
prepared (2); a driver that dies before the decision (3), after it (5), or with the cluster (4); a commit that raises
after the decision (6), or of which the request or the answer is lost (7); a driver that comes back when another has
taken over (8).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
import spark_copy
from dying_sink import Moment
from klamm_process import KlammProcess

from klamm import Admin, Consumer, LedgerId, NewTopic, Producer, TopicPartition
from klamm.errors import KlammError

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

DEADLINE_S = 180
VALUES = [f"{number:04}" for number in range(2 * spark_copy.ROWS_PER_BATCH)]
SETTINGS = {"transaction.state.log.num.partitions": "5"}
PARTITIONS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[KlammProcess]:
    """One that tests may kill."""
    running = KlammProcess(tmp_path_factory.mktemp("cluster"), SETTINGS)
    running.start()
    yield running
    if running.running:
        running.stop()


@pytest.fixture(scope="module")
def spark():
    from pyspark_klamm.local import local_session

    session = local_session("windows")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def query(spark, cluster, tmp_path) -> Iterator[Query]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield Query(spark, cluster, admin, tmp_path)


class Query:
    """A copy of one topic to another, of two batches with two tasks each."""

    def __init__(self, spark, cluster: KlammProcess, admin: Admin, directory: pathlib.Path) -> None:
        self.spark, self.cluster, self.admin = spark, cluster, admin
        self.checkpoint, self.marker = directory / "checkpoint", directory / "marker"
        self.log_path = directory / "driver.log"
        self.source, self.target = f"in-{directory.name}", f"out-{directory.name}"
        admin.create_topics([NewTopic(self.source, PARTITIONS), NewTopic(self.target, PARTITIONS)])
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number, value in enumerate(VALUES):
                producer.send(self.source, value.encode(), partition=number % PARTITIONS)

    def sink(self, moment: Moment) -> dict[str, str]:
        return {"moment": moment, "marker": str(self.marker), "cluster": str(self.cluster.pid)}

    def run_to_end(self, sink: dict[str, str] | None = None) -> None:
        """In the test's own Spark."""
        arguments = (self.cluster.bootstrap, self.source, self.target, self.checkpoint)
        copy = spark_copy.copy(self.spark, *arguments, sink=sink)
        copy.trigger(availableNow=True).start().awaitTermination()

    @contextlib.contextmanager
    def driver(self, pause_s: float, sink: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A process of its own."""
        arguments = [self.cluster.bootstrap, self.source, self.target, str(self.checkpoint), str(pause_s)]
        arguments += [f"{name}={value}" for name, value in (sink or {}).items()]
        with self.log_path.open("a") as log:
            command = [sys.executable, spark_copy.__file__, *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def check(self) -> None:
        """Each value counts once, and nothing is left open."""
        partitions = [TopicPartition(self.target, number) for number in range(PARTITIONS)]
        settings = {"bootstrap_servers": self.cluster.bootstrap, "enable_auto_commit": False}
        with Consumer(**settings) as consumer:
            ends = consumer.end_offsets(partitions)
        found: list[str] = []
        with Consumer(**settings, isolation_level="read_committed") as consumer:
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            until_s = time.monotonic() + DEADLINE_S
            while any(consumer.position(tp) < ends[tp] for tp in partitions):
                assert time.monotonic() < until_s, "a transaction stays open"
                for records in consumer.poll(200).values():
                    found += [record.value.decode() for record in records]
        assert sorted(found) == VALUES
        assert not self.open_parts()

    def open_parts(self) -> tuple:
        with contextlib.suppress(FileNotFoundError, IndexError, KlammError):
            query_id = (self.checkpoint / "metadata").read_text().split('"')[3]
            ledger = self.admin.list_ledgers().get(LedgerId("spark", query_id))
            return () if ledger is None else ledger.open_parts
        return ()


@pytest.mark.parametrize("moment", [Moment.TASK_WROTE, Moment.TASK_PREPARED, Moment.DECIDED_TWICE])
def test_a_batch_counts_once_though(query, moment):
    """Windows 1, 2 and half of 7: Spark runs the task again."""
    query.run_to_end(query.sink(moment))
    assert query.marker.exists()
    query.check()


@pytest.mark.parametrize("moment", [Moment.REQUEST_LOST, Moment.ANSWER_LOST])
def test_a_batch_counts_once_in_the_next_run_though(query, moment):
    """Windows 6 and 7: Spark has the batch aborted, which must not undo what is decided, and ends the query."""
    with pytest.raises(Exception, match="planned"):
        query.run_to_end(query.sink(moment))
    query.run_to_end()
    query.check()


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
def test_a_batch_counts_once_with_the_next_driver_though(query, moment):
    """Windows 3, 5 and 4."""
    with query.driver(0.0, query.sink(moment)) as process:
        process.wait(DEADLINE_S)
    assert query.marker.exists(), query.log_path.read_text()
    if moment is Moment.DRIVER_AND_CLUSTER:
        query.cluster.kill()  # it is dead: this forgets its process
        query.cluster.start()
    query.run_to_end()
    query.check()


@pytest.mark.chaos
def test_a_driver_that_comes_back_when_another_has_taken_over_writes_nothing(query):
    """Window 8."""
    with query.driver(0.2) as process:
        until_s = time.monotonic() + DEADLINE_S
        while not any(part.prepared_ms > 0 for part in query.open_parts()):
            assert time.monotonic() < until_s, query.log_path.read_text()
            time.sleep(0.01)
        driver = next(child for child in psutil.Process(process.pid).children(True) if child.name() == "java")
        driver.suspend()
        query.run_to_end()
        driver.resume()
        assert process.wait(DEADLINE_S) != 0
    query.check()
