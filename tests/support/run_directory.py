"""The folder that holds every temporary file of a run of the tests, and is removed when the run has passed.

Each program that a test starts finds the folder through its environment: Python and C programs by `TMPDIR`, a JVM by
`java.io.tmpdir`, Spark by `SPARK_LOCAL_DIRS`. So nothing of the run stays in the machine's own folder, also where a JVM
was killed. By the same variable the run finds the processes that it left behind, and fails if there are any.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterable
from typing import Any, Final

import pytest

from tests.support.waiting import patience

PREFIX: Final = "klamm-tests-"

_JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Options of each JVM that a test starts. A JVM that lives for a minute is not worth optimising: that took half of its
CPU time. Without performance data it writes no file into /tmp/hsperfdata_USER, which `java.io.tmpdir` does not move."""

_PAUSE_S: Final = 0.1

_START_PAUSES_MAX: Final = 600
"""The number of pauses that a process may take to start its program."""

_VSIZE: Final = 20
_ENV_END: Final = 48
"""The places of two fields of /proc/PID/stat after the command's name: the size of the memory, and the address of the
environment's end (proc_pid_stat(5))."""


def install(config: pytest.Config) -> None:
    """Makes the folder in the process that collects the results. With pytest-xdist, this process starts the workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunDirectory())


class RunDirectory:
    """The pytest plugin that makes the folder of a run, and removes the folder at the end."""

    def __init__(self) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
        os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(self.path)
        os.environ["JDK_JAVA_OPTIONS"] = f"{_JVM_OPTIONS} -Djava.io.tmpdir={self.path}"
        tempfile.tempdir = None  # Python asks the environment again

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """Ends processes that the tests left, for which the run fails, and removes the folder of a run that passed."""
        result = yield
        _end_sparks_jvm()
        terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        for number, command in self._left_processes():
            terminal.write_line(f"the tests left the process {number}: {command}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            terminal.write_line(f"the files of this run are in {self.path}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        return result

    def _left_processes(self) -> list[tuple[int, str]]:
        """Waits until no process of the run is left, for at most `patience()`. Returns the number and the command of
        each process that is left."""
        deadline_s = time.monotonic() + patience()
        while (left := list(self._processes())) and time.monotonic() < deadline_s:
            time.sleep(_PAUSE_S)
        return left

    def _processes(self) -> Iterable[tuple[int, str]]:
        mark = f"TMPDIR={self.path}".encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            # A process that has just ended, or belongs to another user, cannot be read.
            with contextlib.suppress(OSError):
                if mark in environment(process):
                    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    yield int(process.name), command.strip()


def environment(process: pathlib.Path) -> list[bytes]:
    """Returns the environment of the process with this folder in /proc. Raises OSError if it has ended, or belongs to
    another user.

    `Popen` returns a moment before the kernel shows the environment of the program, so this waits for that moment."""
    (process / "environ").open("rb").close()
    for _ in range(_START_PAUSES_MAX):
        if _has_started(process):
            break
        time.sleep(_PAUSE_S)
    return (process / "environ").read_bytes().split(b"\0")


def _has_started(process: pathlib.Path) -> bool:
    """Returns False while the process has memory, but not yet its environment. A process that has ended has neither."""
    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    return fields[_VSIZE] == b"0" or fields[_ENV_END] != b"0"


def _end_sparks_jvm() -> None:
    """Ends the JVM that PySpark keeps until this process ends. It ends when its standard input does."""
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
