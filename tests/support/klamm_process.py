"""`klamm up` as a real process, for tests that start, stop and kill it."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from tests.support.ports import free_port
from tests.support.waiting import patience

KLAMM = (sys.executable, "-m", "klamm")


class KlammProcess:
    """One embedded cluster on a data directory. It keeps its port over restarts, so that clients find it again."""

    def __init__(
        self,
        directory: pathlib.Path,
        settings: Mapping[str, str] | None = None,
        *,
        port: int | None = None,
        program: Sequence[str] = KLAMM,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "klamm-data"
        self.log_path = directory / "klamm-up.log"
        self.port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.kafka_port = free_port()
        self.kafka_bootstrap = f"127.0.0.1:{self.kafka_port}"
        self._program = program
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts the cluster. Returns when the cluster reports that it is ready, or fails with its log."""
        assert self._process is None
        command = [*self._program, "up", "--data-dir", str(self.data_dir), "--port", str(self.port)]
        command += ["--kafka-port", str(self.kafka_port)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "ready" not in line:
            self.kill()
            raise AssertionError(f"klamm up did not get ready: {self.log_path.read_text()}")

    def kill(self) -> None:
        """Kills the process with SIGKILL, so that no handler runs and nothing is flushed."""
        self.end(signal.SIGKILL)

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit status."""
        return self.end(signal.SIGTERM)

    def end(self, number: signal.Signals) -> int:
        """Sends a signal, waits, and returns the exit status."""
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        status = process.wait(patience())
        assert process.stdout is not None
        process.stdout.close()
        return status

    @property
    def started(self) -> bool:
        """True if the process was started, even if it has died since."""
        return self._process is not None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None


@contextlib.contextmanager
def running_cluster(
    directory: pathlib.Path,
    settings: Mapping[str, str] | None = None,
    *,
    port: int | None = None,
    program: Sequence[str] = KLAMM,
) -> Iterator[KlammProcess]:
    """Yields a started cluster, and stops it at the end unless the test has done so. Only cleans up if the cluster has
    died by itself."""
    cluster = KlammProcess(directory, settings, port=port, program=program)
    cluster.start()
    try:
        yield cluster
    finally:
        if cluster.started:
            cluster.stop()
