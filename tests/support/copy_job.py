"""A Spark query that copies one topic to another exactly once. Tests run it, kill it and check its output."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from klamm import Admin, LedgerId, NewTopic, Producer
from klamm.admin import LedgerListing
from tests.support import spark_copy
from tests.support.klamm_process import KlammProcess
from tests.support.topic_reading import IsolationLevel, read_topics
from tests.support.violation import verdict

PARTITIONS = 2


class CopyJob:
    """A query with topics and a checkpoint of its own. Only one driver of it runs at a time."""

    def __init__(self, spark: Any, cluster: KlammProcess, admin: Admin, directory: pathlib.Path) -> None:
        self.spark, self.cluster, self.admin, self.directory = spark, cluster, admin, directory
        self.checkpoint = directory / "checkpoint"
        self.log_path = directory / "driver.log"
        self.source, self.target = f"in-{directory.name}", f"out-{directory.name}"
        admin.create_topics([NewTopic(self.source, PARTITIONS), NewTopic(self.target, PARTITIONS)])

    def produce(self, *values: str) -> None:
        """Produces the values to the source's partitions in turn."""
        with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
            for number, value in enumerate(values):
                producer.send(self.source, value.encode(), partition=number % PARTITIONS)

    def writer(self, sink: Mapping[str, str] | None = None) -> Any:
        """Returns the query in the test's own Spark, not started yet."""
        arguments = (self.cluster.bootstrap, self.source, self.target, self.checkpoint)
        return spark_copy.copy(self.spark, *arguments, sink=sink)

    def run_to_end(self, sink: Mapping[str, str] | None = None) -> None:
        """Runs the query in the test's own Spark until all input is processed. Raises the query's exception."""
        self.writer(sink).trigger(availableNow=True).start().awaitTermination()

    @contextlib.contextmanager
    def driver(self, pause_s: float, options: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Yields a process that runs the query without an end. It is killed with all of its child processes when the
        block ends."""
        arguments = [self.cluster.bootstrap, self.source, self.target, str(self.checkpoint), str(pause_s)]
        arguments += [f"{name}={value}" for name, value in (options or {}).items()]
        with self.log_path.open("a") as log:
            command = [sys.executable, spark_copy.__file__, *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def ledger(self) -> LedgerListing | None:
        """Returns the ledger of the query with this checkpoint, or None if there is none yet."""
        with contextlib.suppress(FileNotFoundError, IndexError):
            query_id = (self.checkpoint / "metadata").read_text().split('"')[3]
            return self.admin.list_ledgers().get(LedgerId("spark", query_id))
        return None

    def read(self, isolation_level: IsolationLevel = "read_committed", *, past_open: bool = False) -> list[str]:
        """Returns the values in the target topic, sorted."""
        records = read_topics(self.cluster.bootstrap, self.target, isolation_level=isolation_level, past_open=past_open)
        return sorted(record.value.decode() for record in records)

    def check_read(self, values: list[str], *, past_open: bool = False) -> None:
        """Raises Violation unless the target topic has exactly these values, each of them once."""
        found = self.read(past_open=past_open)
        with verdict():
            assert found == sorted(values)

    def check(self, values: list[str]) -> None:
        """Checks that each of the values counts once, and that no transaction is left open."""
        self.check_read(values, past_open=True)
        ledger = self.ledger()
        assert ledger is None or not ledger.open_parts
