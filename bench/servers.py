"""Starts the servers that the benchmarks measure, in processes of their own, and reads their CPU time and memory."""

from __future__ import annotations

import compileall
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import psutil

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port() -> int:
    """Returns a port on which no process listens now."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def compile_klamm() -> None:
    """Compiles the sources to bytecode, as an installed wheel has it. A measurement of a start needs it."""
    for folder in ("klamm", "klamm_cli", "services"):
        compileall.compile_dir(ROOT / folder, quiet=1)


@dataclass(frozen=True)
class Server:
    """A running `klamm up`."""

    bootstrap: str
    process: psutil.Process
    data_dir: pathlib.Path

    def cpu_s(self) -> float:
        """CPU seconds used so far, user and system."""
        times = self.process.cpu_times()
        return times.user + times.system

    def rss_mb(self) -> float:
        """Resident memory."""
        return self.process.memory_info().rss / 1e6


@contextlib.contextmanager
def klamm_up(
    *settings: str, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Yields a fresh embedded cluster. `settings` are `name=value`, `options` are those of the command. PYTHONPATH in
    `environment` may name other sources."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as scratch:
        data_dir = pathlib.Path(scratch, "klamm-data")
        command = [
            sys.executable,
            "-P",
            "-m",
            "klamm",
            "up",
            "--data-dir",
            str(data_dir),
            "--port",
            str(port),
            *options,
        ]
        for setting in settings:
            command += ["--set", setting]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        assert process.stdout is not None
        try:
            assert "ready" in process.stdout.readline(), "klamm up did not get ready"
            yield Server(f"127.0.0.1:{port}", psutil.Process(process.pid), data_dir)
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()
