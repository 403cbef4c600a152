"""The server processes by node id, and the faults that strike them. All functions block."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator, Mapping

from tests.support.server_process import ServerProcess

LOG_END_BYTES = 4_000


class StruckProcesses:
    """The server processes of a cluster. It remembers which of them may be down because of a fault."""

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
        """Kills the nodes with SIGKILL, all at once, and waits until they have ended."""
        victims = {node: self._processes[node] for node in nodes}
        for node, victim in victims.items():
            self._may_be_down.add(node)
            victim.signal(signal.SIGKILL)
        for victim in victims.values():
            victim.wait()

    def stop(self, node: int) -> None:
        """Stops the node with SIGTERM, and waits until it has ended. Raises AssertionError if its exit status is not
        0."""
        self._may_be_down.add(node)
        status = self._processes[node].end(signal.SIGTERM)
        assert status == 0, f"{self._name(node)} ended with status {status}:\n{self._log_end(node)}"

    def restart(self, nodes: Iterable[int]) -> None:
        """Starts the nodes that do not run."""
        for node in nodes:
            if not self._processes[node].running:
                self._processes[node].start()

    def expect_up(self) -> None:
        """Ends the time in which nodes may be down."""
        self._may_be_down.clear()

    @contextlib.contextmanager
    def frozen(self, nodes: Iterable[int]) -> Iterator[None]:
        """Freezes the nodes with SIGSTOP within the context, and resumes them with SIGCONT."""
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
