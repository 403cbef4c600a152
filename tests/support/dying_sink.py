"""The klamm sink, exactly once, but at a given moment of its first batch something dies or fails: for the tests of what
becomes of the batch then. `format("klamm-dying")` once `DyingSource` is registered."""

from __future__ import annotations

import enum
import os
import pathlib
import signal
from typing import Any

import psutil
from pyspark import TaskContext

from pyspark_klamm import KlammDataSource
from pyspark_klamm.exactly_once import ExactlyOnceStreamWriter

LAST_TASK = 1
"""Which task's moments are meant."""


class Moment(enum.StrEnum):
    """The value says what happens, and when."""

    TASK_WROTE = "a task is killed when it has written its rows"
    TASK_PREPARED = "a task is killed when it has prepared"
    DRIVER_DURING_TASKS = "the driver is killed while tasks run"
    DRIVER_BEFORE_DECISION = "the driver is killed when all is prepared"
    DRIVER_AFTER_DECISION = "the driver is killed when it has decided"
    DRIVER_AND_CLUSTER = "driver and cluster are killed when it is decided"
    REQUEST_LOST = "the decision fails before anybody hears of it"
    ANSWER_LOST = "the decision fails when it is made"
    DECIDED_TWICE = "the decision is sent twice"


class DyingSource(KlammDataSource):
    """Options: `moment`, `marker` (a file that says that it has been), `cluster` (the process id of the cluster)."""

    @classmethod
    def name(cls) -> str:
        return "klamm-dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> DyingWriter:
        own = {name: self.options.get(name, "") for name in ("moment", "marker", "cluster")}
        options = {name: value for name, value in dict(self.options).items() if name not in own}
        plain = KlammDataSource(options).streamWriter(schema, overwrite)
        return DyingWriter(plain, Moment(own["moment"]), own["marker"], int(own["cluster"] or 0))


class DyingWriter(ExactlyOnceStreamWriter):
    def __init__(self, plain: Any, moment: Moment, marker: str, cluster: int) -> None:
        self.__dict__.update(plain.__dict__)
        self._moment, self._marker, self._cluster = moment, pathlib.Path(marker), cluster

    def write(self, iterator: Any) -> Any:
        if _is_last_task():
            self._at(Moment.DRIVER_DURING_TASKS, _kill_driver)
        output = super().write(iterator)
        if _is_last_task():
            self._at(Moment.TASK_PREPARED, _kill_worker)
        return output

    def _send_all(self, producer: Any, batches: Any) -> int:
        count = super()._send_all(producer, batches)
        if _is_last_task():
            self._at(Moment.TASK_WROTE, _kill_worker)
        return count

    def commit(self, messages: Any, batchId: int) -> None:
        self._at(Moment.DRIVER_BEFORE_DECISION, _kill_driver)
        self._at(Moment.REQUEST_LOST, _fail)
        super().commit(messages, batchId)
        self._at(Moment.DECIDED_TWICE, lambda: super(DyingWriter, self).commit(messages, batchId))
        self._at(Moment.ANSWER_LOST, _fail)
        self._at(Moment.DRIVER_AFTER_DECISION, _kill_driver)
        self._at(Moment.DRIVER_AND_CLUSTER, self._kill_driver_and_cluster)

    def _at(self, moment: Moment, act: Any) -> None:
        if moment is self._moment and not self._marker.exists():
            self._marker.touch()
            act()

    def _kill_driver_and_cluster(self) -> None:
        os.kill(self._cluster, signal.SIGKILL)
        _kill_driver()


def _is_last_task() -> bool:
    task = TaskContext.get()
    assert task is not None
    return task.partitionId() == LAST_TASK


def _kill_worker() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_driver() -> None:
    """The JVM that this process works for; this process then ends as well."""
    next(process for process in psutil.Process().parents() if process.name() == "java").kill()
    signal.pause()


def _fail() -> None:
    raise ConnectionError("planned")
