"""The services as a deployment runs them: a process of each, with a port and a properties file of its own."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
from collections.abc import Mapping

import psutil

from tests.support.ports import free_port
from tests.support.waiting import patience

HOST = "127.0.0.1"


class ServiceProcess:
    """A `python -m <package> --config <file>` process that keeps its port and directory over restarts."""

    def __init__(
        self, package: str, directory: pathlib.Path, properties: dict[str, str], *, listeners: tuple[str, ...] = ()
    ) -> None:
        self.port = free_port()
        self.ports = {name: free_port() for name in listeners}
        self._config_path = directory / f"{package}.properties"
        self._log_path = directory / f"{package}.log"
        self._package = package
        addresses = [f"{name}://{HOST}:{port}" for name, port in {"GRPC": self.port, **self.ports}.items()]
        own = {"node.id": "1", "listeners": ",".join(addresses)}
        lines = [f"{name}={value}\n" for name, value in {**own, **properties}.items()]
        self._config_path.write_text(f"# {package}\n" + "".join(lines))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", self._package, "--config", str(self._config_path)]
        with self._log_path.open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        """The text that the process has written so far."""
        return self._log_path.read_text()

    @property
    def resident_bytes(self) -> int:
        """The memory that the process takes."""
        assert self._process is not None
        return psutil.Process(self._process.pid).memory_info().rss

    def end(self, number: signal.Signals) -> int:
        """Sends the signal. Returns the exit status."""
        assert self._process is not None
        process, self._process = self._process, None
        assert process.poll() is None, f"{self._package} had ended: {self._log_path.read_text()}"
        process.send_signal(number)
        return process.wait(patience())

    def abandon(self) -> None:
        """Kills the process if it still runs at the end of the test."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(patience())


class Deployment:
    """A deployment with one process of each service. `broker` and `coordinator` are more settings of these."""

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        broker: Mapping[str, str] | None = None,
        coordinator: Mapping[str, str] | None = None,
    ) -> None:
        self.controller = ServiceProcess(
            "klamm_controller", directory, {"metadata.log.dir": str(directory / "controller")}
        )
        follows = {"controller.quorum.bootstrap.servers": f"{HOST}:{self.controller.port}"}
        self.broker = ServiceProcess(
            "klamm_broker",
            directory,
            {**follows, "log.dirs": f"{directory / 'broker-a'},{directory / 'broker-b'}", **(broker or {})},
            listeners=("KAFKA",),
        )
        self.coordinator = ServiceProcess(
            "klamm_coordinator",
            directory,
            {**follows, "group.initial.rebalance.delay.ms": "0", **(coordinator or {})},
        )
        self.bootstrap = f"{HOST}:{self.broker.port}"
        self.kafka_bootstrap = f"{HOST}:{self.broker.ports['KAFKA']}"

    @property
    def services(self) -> dict[str, ServiceProcess]:
        return {"controller": self.controller, "broker": self.broker, "coordinator": self.coordinator}
