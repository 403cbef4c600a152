"""A cluster that `klamm up --controllers 3 --brokers 3 --coordinators 2` runs, as a user has it.

The command starts dead processes again after a pause of its own. No process is away for longer than that, and the run
starts only the command. All processes share one host, so there are no cables. Where the run has a network of its own,
packets are dropped by port.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Final

import psutil

from tests.chaos.klammchaos.means import Means
from tests.chaos.klammchaos.namespaces import NotPossibleError
from tests.chaos.klammchaos.partition_cluster import (
    BROKERS,
    CONTROLLERS,
    DEADLINE_S,
    DISK_SIZE,
    SEGMENT_BYTES,
    PartitionCluster,
)
from tests.chaos.klammchaos.port_cuts import PortCuts
from tests.chaos.klammchaos.struck_processes import LOG_END_BYTES
from tests.chaos.klammchaos.surroundings import Surroundings
from tests.support.ports import free_ports
from tests.support.waiting import until, wait_until

COORDINATORS: Final = (201, 202)
HOST: Final = "127.0.0.1"
_KAFKA_PORT_STEP: Final = 10
_NAMES: Final = {
    **{node: f"controller {number}" for number, node in enumerate(CONTROLLERS, 1)},
    **{node: f"broker {number}" for number, node in enumerate(BROKERS, 1)},
    **{node: f"coordinator {number}" for number, node in enumerate(COORDINATORS, 1)},
}
"""The names that the command has for the nodes."""
_ORDER: Final = (*BROKERS, *CONTROLLERS, *COORDINATORS)
"""The order in which the command gives its processes their ports."""


class UpCluster(PartitionCluster):
    """The command, and its processes by node."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__()
        self.surroundings = Surroundings(())
        self._directory = directory
        self._data_dir.mkdir()
        self.surroundings.mount({broker: self.log_dir(broker) for broker in BROKERS}, DISK_SIZE)
        kafka = len(_ORDER)
        ports = free_ports([*range(kafka), *(kafka + number * _KAFKA_PORT_STEP for number in range(len(BROKERS)))])
        self._kafka_port = ports[kafka]
        self.ports = dict(zip(_ORDER, ports, strict=False))
        self.bootstrap = ",".join(f"{HOST}:{self.ports[broker]}" for broker in BROKERS)
        kafka_ports = [self._kafka_port + number * _KAFKA_PORT_STEP for number in range(len(BROKERS))]
        self.kafka_bootstrap = ",".join(f"{HOST}:{port}" for port in kafka_ports)
        self.cuts: PortCuts | None = None
        try:
            self.cuts = PortCuts()
        except NotPossibleError as error:
            self.surroundings.missing.append(f"cut by port: {error}")
        self.surroundings.missing.append("cables between nodes: the processes of `klamm up` share one host")
        self.surroundings.missing.append("a killed process that stays away: `klamm up` starts it again")
        self._command: subprocess.Popen[str] | None = None
        self._started_at = 0
        """The size of the log at the last start, in bytes."""
        self._pids: dict[int, int] = {}
        """The process ids when all nodes were last seen to run."""
        self._may_be_down: set[int] = set()

    @property
    def means(self) -> frozenset[Means]:
        possible = {
            Means.DISKS: self.surroundings.has_disks,
            Means.PORTS: self.cuts is not None,
            Means.COMMAND: True,
        }
        return frozenset(means for means, is_possible in possible.items() if is_possible)

    def log_dir(self, broker: int) -> pathlib.Path:
        return self._data_dir / f"broker-{broker}"

    # The command

    def start(self) -> None:
        """Starts the command, and returns when it prints that it is ready."""
        command = [sys.executable, "-m", "klamm", "up", "--data-dir", str(self._data_dir)]
        command += ["--controllers", str(len(CONTROLLERS)), "--brokers", str(len(BROKERS))]
        command += ["--coordinators", str(len(COORDINATORS)), "--host", HOST, "--port", str(self.ports[BROKERS[0]])]
        command += ["--kafka-port", str(self._kafka_port), "--log-level", "INFO", "--log-format", "text"]
        command += ["--set", f"log.segment.bytes={SEGMENT_BYTES}"]
        with self._log_path.open("a") as log:
            self._started_at = log.tell()
            self._command = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._command.stdout is not None
        line = self._command.stdout.readline()
        assert line.startswith("klamm is ready at "), f"{line!r}:\n{self._log_end()}"
        self._pids = self._running()

    def end_command(self, number: signal.Signals) -> int:
        """Sends the signal to the command. Returns its exit status after all processes that it ran have ended too."""
        assert self._command is not None
        command, self._command = self._command, None
        processes = [psutil.Process(pid) for pid in self._running(command.pid).values()]
        command.send_signal(number)
        status = command.wait(DEADLINE_S)
        _, alive = psutil.wait_procs(processes, timeout=DEADLINE_S)
        assert not alive, f"the command has ended, and these have not: {alive}"
        assert command.stdout is not None
        command.stdout.close()
        return status

    def close(self) -> None:
        if self._command is not None:
            self.end_command(signal.SIGKILL)

    def stop_brokers(self) -> None:
        status = self.end_command(signal.SIGTERM)
        assert status == 0, f"klamm up ended with status {status}:\n{self._log_end()}"

    # Its processes

    def kill(self, nodes: Iterable[int]) -> None:
        self._end(nodes, signal.SIGKILL)

    def stop(self, node: int) -> None:
        for status in self._end([node], signal.SIGTERM):
            assert status == 0, f"{_NAMES[node]} ended with status {status}:\n{self._log_end()}"

    def restart(self, nodes: Iterable[int]) -> None:
        """Does nothing, because the command starts dead processes again."""

    def _end(self, nodes: Iterable[int], number: signal.Signals) -> list[int]:
        """Sends the signal to the nodes that run. Returns their exit statuses, as the command prints them."""
        running = self._running()
        # A node that does not run was ended by an earlier fault, and is being started again.
        victims = [node for node in nodes if node in running]
        self._may_be_down.update(victims)
        since = self._log_path.stat().st_size
        for victim in victims:
            os.kill(running[victim], number)
        return [self._wait_ended(victim, since) for victim in victims]

    def _wait_ended(self, node: int, since: int) -> int:
        pattern = rf" {re.escape(_NAMES[node])} ended with status=(-?\d+) and restarts"
        ended = wait_until(
            lambda: re.search(pattern, self._said(since)),
            lambda: f"{_NAMES[node]} did not end:\n{self._log_end()}",
            timeout_s=DEADLINE_S,
        )
        assert ended is not None
        return int(ended[1])

    @contextlib.contextmanager
    def frozen(self, nodes: Iterable[int]) -> Iterator[None]:
        running = self._running()
        victims = [running[node] for node in nodes]
        for victim in victims:
            os.kill(victim, signal.SIGSTOP)
        try:
            yield
        finally:
            for victim in victims:
                os.kill(victim, signal.SIGCONT)

    async def wait_up(self) -> None:
        await until(
            lambda: asyncio.to_thread(self._all_serve),
            lambda: f"not all serve again:\n{self._log_end()}",
            timeout_s=DEADLINE_S,
            pause_s=0.1,
        )
        self._may_be_down.clear()
        self._pids = self._running()
        assert len(self._pids) == len(_NAMES), f"of {_NAMES} there are {self._pids}:\n{self._log_end()}"

    def check_running(self) -> None:
        """Checks that no process has ended by itself. A node whose process ended has another process now, or none."""
        if self._command is None:
            return
        assert self._command.poll() is None, f"klamm up ended by itself:\n{self._log_end()}"
        running = self._running()
        for node, pid in self._pids.items():
            if node not in self._may_be_down:
                assert running.get(node) == pid, f"{_NAMES[node]} ended by itself:\n{self._log_end()}"

    def _running(self, command_pid: int | None = None) -> dict[int, int]:
        """Returns the process id of each node that runs."""
        if command_pid is None:
            assert self._command is not None
            command_pid = self._command.pid
        nodes = {name: node for node, name in _NAMES.items()}
        found: dict[int, int] = {}
        for child in psutil.Process(command_pid).children():
            # A zombie has no command line, and a process that has not begun to run has the command line of `klamm up`.
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                arguments = " ".join(child.cmdline())
                if match := re.search(r"-m klamm_(\w+) .*--set=node\.id=(\d+)", arguments):
                    found[nodes[f"{match[1]} {match[2]}"]] = child.pid
        return found

    def _all_serve(self) -> bool:
        """Returns True if all nodes serve again, according to the command's last line about each node that ended."""
        last = dict(re.findall(r" (\w+ \d+) (ended|serves) ", self._said(self._started_at)))
        return "ended" not in last.values()

    def _said(self, since: int) -> str:
        """Returns the output of the command and its processes from that byte on."""
        with self._log_path.open("rb") as log:
            log.seek(since)
            return log.read().decode()

    def _log_end(self) -> str:
        return self._log_path.read_text()[-LOG_END_BYTES:]

    @property
    def _data_dir(self) -> pathlib.Path:
        return self._directory / "data"

    @property
    def _log_path(self) -> pathlib.Path:
        """The log with the output of the command and its processes."""
        return self._directory / "klamm-up.log"
