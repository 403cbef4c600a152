"""The server processes by node id, and the faults that strike them. All functions block."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator, Mapping

from tests.support.server_process import ServerProcess

LOG_END_BYTES = 4_000


class StruckProcesses:
    """Keeps in mind who has a reason to be down."""

    def __init__(self, processes: Mapping[int, ServerProcess]) -> None:
        self._processes = processes
        self._may_be_down: set[int] = set()

    def start(self) -> None:
        for process in self._processes.values():
            process.start()

    def close(self) -> None:
        """Ends all processes that are left."""
        for process in self._processes.values():
            process.abandon()

    def kill(self, nodes: Iterable[int]) -> None:
        """kill -9, all at once."""
        victims = {node: self._processes[node] for node in nodes}
        for node, victim in victims.items():
            self._may_be_down.add(node)
            victim.signal(signal.SIGKILL)
        for victim in victims.values():
            victim.wait()

    def stop(self, node: int) -> None:
        """SIGTERM, which must end it in order."""
        self._may_be_down.add(node)
        status = self._processes[node].end(signal.SIGTERM)
        assert status == 0, f"{self._name(node)} ended with status {status}:\n{self._log_end(node)}"

    def restart(self, nodes: Iterable[int]) -> None:
        """Starts those of the nodes that do not run."""
        for node in nodes:
            if not self._processes[node].running:
                self._processes[node].start()

    def expect_up(self) -> None:
        """Ends the time in which nodes may be down."""
        self._may_be_down.clear()

    @contextlib.contextmanager
    def frozen(self, nodes: Iterable[int]) -> Iterator[None]:
        """SIGSTOP, then SIGCONT."""
        victims = [self._processes[node] for node in nodes]
        for victim in victims:
            victim.freeze()
        try:
            yield
        finally:
            for victim in victims:
                victim.thaw()

    def check_running(self) -> None:
        """Checks that no process has ended by itself."""
        for node, process in self._processes.items():
            if node not in self._may_be_down:
                assert process.running, f"{self._name(node)} ended by itself:\n{self._log_end(node)}"

    def _log_end(self, node: int) -> str:
        return self._processes[node].log_path.read_text()[-LOG_END_BYTES:]

    def _name(self, node: int) -> str:
        return self._processes[node].log_path.stem
