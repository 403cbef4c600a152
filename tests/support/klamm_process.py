"""`klamm up` as a real process, for tests that start, stop and kill it."""

from __future__ import annotations

import contextlib
import pathlib
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

START_TIMEOUT_S = 60


_PORTS = range(10_000, 30_000)
"""Below those that systems give to outgoing connections, which might take one before its server does, or while that
is down (Linux: from 32,768 on)."""
_random = random.Random()  # not seeded by the test run: what runs beside it draws other ports


def free_port() -> int:
    """A port nobody listens on now."""
    return free_ports([0])[0]


def free_ports(offsets: Sequence[int]) -> list[int]:
    """Ports nobody listens on now, so far from the first of them."""
    while True:
        first = _random.choice(_PORTS)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for offset in offsets:
                probe = probes.enter_context(contextlib.closing(socket.socket()))
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", first + offset))
            return [first + offset for offset in offsets]


class KlammProcess:
    """One embedded cluster on a data directory; keeps its port over restarts, so that clients find it again."""

    def __init__(
        self, directory: pathlib.Path, settings: Mapping[str, str] | None = None, *, port: int | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "klamm-data"
        self.log_path = directory / "klamm-up.log"
        self.port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.kafka_port = free_port()
        self.kafka_bootstrap = f"127.0.0.1:{self.kafka_port}"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when the cluster says that it is ready; fails with its log when it does not."""
        assert self._process is None
        command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(self.data_dir), "--port", str(self.port)]
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
        """kill -9: no handler runs, nothing is flushed."""
        self.end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        return self.end(signal.SIGTERM)

    def end(self, number: signal.Signals) -> int:
        """Sends it a signal and waits; returns the exit status."""
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        status = process.wait(START_TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()
        return status

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None


@contextlib.contextmanager
def running_cluster(
    directory: pathlib.Path, settings: Mapping[str, str] | None = None, *, port: int | None = None
) -> Iterator[KlammProcess]:
    """A started cluster; stopped (or killed, if it was not running any more) at the end."""
    cluster = KlammProcess(directory, settings, port=port)
    cluster.start()
    try:
        yield cluster
    finally:
        if cluster.running:
            cluster.stop()
