"""The klamm sink with exactly-once output, in which a process dies or a call fails at a given moment of the first
batch. Tests use it to see the outcome of the batch. It is `format("klamm-dying")` after `DyingSource` is registered."""

from __future__ import annotations

import enum
import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import psutil
from pyspark import TaskContext

from pyspark_klamm import KlammDataSource
from pyspark_klamm.exactly_once import ExactlyOnceStreamWriter
from pyspark_klamm.row_sender import RowSender
from pyspark_klamm.sink_options import SinkOptions, sink_options
from tests.support.waiting import wait_until

LAST_TASK = 1
"""The task whose moments the script uses."""


class Moment(enum.StrEnum):
    """A moment of a batch. The value says what fails then."""

    TASK_WROTE = "a task is killed when it has written its rows"
    TASK_PREPARED = "a task is killed when it has prepared"
    DRIVER_DURING_TASKS = "the driver is killed while tasks run"
    DRIVER_BEFORE_DECISION = "the driver is killed when all is prepared"
    DRIVER_AFTER_DECISION = "the driver is killed when it has decided"
    DRIVER_AND_CLUSTER = "driver and cluster are killed when it is decided"
    REQUEST_LOST = "the decision fails before anybody hears of it"
    ANSWER_LOST = "the decision fails when it is made"
    DECIDED_TWICE = "the decision is sent twice"
    COPIED = "a task is slow, and its speculative copy prepares as well"


class DyingSource(KlammDataSource):
    """The data source `klamm-dying`. Options: `moment`, `marker` (a file that exists after the failure), `cluster` (the
    process id of the cluster)."""

    @classmethod
    def name(cls) -> str:
        return "klamm-dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> DyingWriter:
        own = {name: self.options.get(name, "") for name in ("moment", "marker", "cluster")}
        options = {name: value for name, value in dict(self.options).items() if name not in own}
        script = Script(Moment(own["moment"]), pathlib.Path(own["marker"]), int(own["cluster"] or 0))
        checked = sink_options(options)
        return DyingWriter(checked, DyingSender(RowSender(checked, schema), script), script)


class Script:
    """The failure of a sink, which happens once."""

    def __init__(self, moment: Moment, marker: pathlib.Path, cluster: int) -> None:
        self._moment, self._marker, self._cluster = moment, marker, cluster

    def at(self, moment: Moment, act: Callable[[], object]) -> None:
        """Calls `act` if `moment` is the script's moment and the failure has not happened yet."""
        if moment is self._moment and not self._marker.exists():
            self._marker.touch()
            act()

    def kill_driver_and_cluster(self) -> None:
        os.kill(self._cluster, signal.SIGKILL)
        _kill_driver()

    def at_copied(self, attempt: int) -> None:
        """Waits until two attempts of a task have called this, so that both have prepared."""
        if self._moment is not Moment.COPIED or self._marker.exists():
            return
        here, there = (self._marker.with_name(f"attempt-{number}") for number in (attempt, 1 - attempt))
        here.touch()
        wait_until(there.exists, f"{there.name} did not prepare")
        self._marker.touch()


class DyingSender:
    """Sends rows as the sink does, and then kills the worker if this is the script's moment."""

    def __init__(self, sender: RowSender, script: Script) -> None:
        self._sender, self._script = sender, script

    def send_all(self, producer: Any, batches: Any) -> int:
        count = self._sender.send_all(producer, batches)
        if _is_last_task():
            self._script.at(Moment.TASK_WROTE, _kill_worker)
        return count


class DyingWriter(ExactlyOnceStreamWriter):
    def __init__(self, options: SinkOptions, sender: DyingSender, script: Script) -> None:
        super().__init__(options, sender)
        self._script = script

    def write(self, iterator: Any) -> Any:
        if _is_last_task():
            self._script.at(Moment.DRIVER_DURING_TASKS, _kill_driver)
        output = super().write(iterator)
        if _is_last_task():
            self._script.at(Moment.TASK_PREPARED, _kill_worker)
            self._script.at_copied(TaskContext.get().attemptNumber())
        return output

    def commit(self, messages: Any, batchId: int) -> None:
        at = self._script.at
        at(Moment.DRIVER_BEFORE_DECISION, _kill_driver)
        at(Moment.REQUEST_LOST, _fail)
        super().commit(messages, batchId)
        at(Moment.DECIDED_TWICE, lambda: super(DyingWriter, self).commit(messages, batchId))
        at(Moment.ANSWER_LOST, _fail)
        at(Moment.DRIVER_AFTER_DECISION, _kill_driver)
        at(Moment.DRIVER_AND_CLUSTER, self._script.kill_driver_and_cluster)


def _is_last_task() -> bool:
    task = TaskContext.get()
    assert task is not None
    return task.partitionId() == LAST_TASK


def _kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_driver() -> None:
    """Kills the JVM that this process works for. This process then ends as well."""
    next(process for process in psutil.Process().parents() if process.name() == "java").kill()
    signal.pause()


def _fail() -> None:
    raise ConnectionError("planned")
