"""Starts the Spark program again whenever it ends, and finds its live processes by the part that they play."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import os
import pathlib
import signal
import subprocess
import sys
from typing import Final

import psutil

from tests.chaos.klammchaos import spark_driver
from tests.support.waiting import patience

_LOG_END_BYTES: Final = 3_000


class Part(enum.Enum):
    """The part that a process plays in the program. The value is in its command line."""

    DRIVER = "org.apache.spark.deploy.SparkSubmit"
    EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    WORKER = "pyspark.worker"
    """Runs a task's Python: reads the source, writes the sink."""
    COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
    """Runs commit and abort of the sink, next to the driver."""
    SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"
    """Plans one query's batches."""


class SparkProgram:
    """The Spark program. `supervise` runs it again and again, while the other methods are called."""

    def __init__(self, bootstrap: str, directory: pathlib.Path) -> None:
        self.starts = 0
        self._command = [sys.executable, spark_driver.__file__, bootstrap, str(directory)]
        self._log_path = directory / "spark.log"
        self._process: asyncio.subprocess.Process | None = None
        self._groups: list[int] = []
        self.ended = asyncio.Event()
        """Set whenever the program has ended, and is about to be started again."""

    async def supervise(self) -> None:
        """Runs the program again and again until it is cancelled."""
        while True:
            self.starts += 1
            process = await self.start_another()
            self._process = process
            await process.wait()
            self.ended.set()

    async def start_another(self) -> asyncio.subprocess.Process:
        """Starts one more program, independent of the supervised one. It ends with `close` at the latest."""
        with self._log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._groups.append(process.pid)
        return process

    def find(self, part: Part) -> list[psutil.Process]:
        """Returns the live processes that play this part, in order of their ids."""
        if self._process is None:
            return []
        return find(self._process.pid, part)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def close(self) -> None:
        """Ends all processes that are left."""
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        if self._process is not None:
            await asyncio.wait_for(self._process.wait(), patience())

    def log_end(self) -> str:
        return self._log_path.read_text(errors="replace")[-_LOG_END_BYTES:] if self._log_path.exists() else ""


def find(root: int, part: Part) -> list[psutil.Process]:
    """Returns the processes of that part among the descendants of the process `root`."""
    try:
        below = psutil.Process(root).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return sorted((process for process in below if _is(process, part)), key=lambda process: process.pid)


def _is(process: psutil.Process, part: Part) -> bool:
    try:
        if part.value not in process.cmdline() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        # A daemon forks the workers, which have the daemon's command line.
        return part not in (Part.WORKER, Part.COMMITTER) or part.value in process.parent().cmdline()
    except (psutil.NoSuchProcess, AttributeError):
        return False
