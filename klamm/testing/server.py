"""One server of a test's cluster: a process that can be killed, paused and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from klamm.errors import KlammError
from klamm.health import ProbeError, check

STOP_TIMEOUT_S: Final = 30.0
"""The time after which a process that has not stopped is killed, in seconds."""
_PROBE_INTERVAL_S: Final = 0.02
_PROBE_TIMEOUT_S: Final = 5.0
_LOG_SHOWN: Final = 4_000
"""The number of characters that an error shows of the end of a log."""


class ServerNotReadyError(KlammError):
    """A server did not start: its process ended, or took too long. The text has the end of its log."""


class EmbeddedServer:
    """A server's process. It keeps its name, port, directory and log file when it is started again."""

    def __init__(self, name: str, command: Sequence[str], address: str, log_path: Path) -> None:
        """Describes a server without starting it. `address` is the host:port at which the process reports its health
        over gRPC."""
        self.name = name
        self._command = list(command)
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Returns whether the process exists. A paused process counts too."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the process. Raises ServerNotReadyError if none was started."""
        return self._started().pid

    @property
    def log(self) -> str:
        """Returns the output of the process to stdout and stderr, of all its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    def start(self) -> None:
        """Starts the process without waiting for it. Does nothing while it runs."""
        if self.is_running:
            return
        self._release()
        with self._log_path.open("ab") as log:
            # The process ends when its standard input ends. So no test leaves a process behind, even if the test is
            # killed.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def wait_ready(self, timeout_s: float) -> None:
        """Waits until the server reports that it serves.

        Raises ServerNotReadyError if it has ended, or does not serve within `timeout_s` seconds."""
        process = self._started()
        left = int(timeout_s / _PROBE_INTERVAL_S)
        while not self._is_serving():
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(_PROBE_INTERVAL_S)
                raise ServerNotReadyError(f"{self.name} ended with status {status}: {self.log[-_LOG_SHOWN:]}")
            left -= 1
            if left <= 0:
                raise ServerNotReadyError(f"{self.name} does not serve after {timeout_s:g} s: {self.log[-_LOG_SHOWN:]}")

    def kill(self) -> None:
        """Kills the process like kill -9: it cannot flush files or notify other servers."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stops the process like an operator, so that it first hands over its work. Waits until it has ended."""
        self.resume()
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Freezes the process: connections stay open, but it answers nothing. Does nothing if it does not run."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process continue. Does nothing if it does not run."""
        self._signal(signal.SIGCONT)

    def _is_serving(self) -> bool:
        try:
            return check(self._host, self._port, timeout_s=_PROBE_TIMEOUT_S) == "SERVING"
        except (OSError, ProbeError):
            return False

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.kill(self._started().pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._release()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerNotReadyError(f"{self.name} has not been started")
        return self._process

    def _release(self) -> None:
        """Closes the pipe to a process that has ended."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
