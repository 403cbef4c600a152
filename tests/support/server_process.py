"""A service as a process, for tests that kill, stop and freeze it."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.support.waiting import patience


class ServerProcess:
    """`python -m <package>` with settings and further `arguments`. It keeps its port and directory over restarts.
    `prefix` is a command that runs the rest of its command line in its own place."""

    def __init__(
        self,
        package: str,
        node_id: int,
        directory: pathlib.Path,
        settings: Mapping[str, str],
        prefix: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> None:
        self.node_id = node_id
        self.address = settings["listeners"].partition(",")[0].partition("://")[2]
        self.port = int(self.address.rpartition(":")[2])
        self.log_path = directory / f"{package}-{node_id}.log"
        self.settings = {"node.id": str(node_id), **settings}
        """The settings of the next start."""
        self._command = [*prefix, sys.executable, "-m", package, *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert not self.running
        settings = [f"--set={name}={text}" for name, text in self.settings.items()]
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen([*self._command, *settings], stdout=log, stderr=log)

    def end(self, number: signal.Signals) -> int:
        """Sends the signal and returns the exit status."""
        self.signal(number)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"it had ended: {self.log_path.read_text()}"
        self._process.send_signal(number)

    def wait(self) -> int:
        """Waits until the process has ended, and returns its exit status."""
        assert self._process is not None
        process, self._process = self._process, None
        return process.wait(patience())

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def abandon(self) -> None:
        """Kills the process if it still runs, so that it does not outlive the test."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(patience())
