"""A cluster for tests: the servers that production has, as processes on this machine."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from klamm.errors import ConfigError
from klamm.testing.layout import lay_out
from klamm.testing.server import EmbeddedServer

START_TIMEOUT_S: Final = 60.0


class EmbeddedCluster:
    """A cluster that lives as long as a `with` or `async with` block.

    With one controller, one broker and one coordinator, the default, everything is one process, named `klamm`, and
    ready in about a second. With more of a kind each server is a process, named as `broker-1`, `controller-3` or
    `coordinator-1`. A server that is killed stays down until `restart`.

    The servers are processes and not threads of the test: a thread cannot be killed, and would share the test's
    interpreter lock.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        controllers: int = 1,
        coordinators: int = 1,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
    ) -> None:
        """Lays out the servers without starting them. `settings` are server configs by Kafka's names. `data_dir` is
        kept at the end. Without it, the cluster uses a temporary directory, which is removed.

        Raises ConfigError for a setting that no server has, and if `klamm[server]` is not installed."""
        self._removed_dir = None if data_dir is not None else Path(tempfile.mkdtemp(prefix="klamm-testing-"))
        self.data_dir = data_dir or self._removed_dir or Path()
        """The directory of the servers' records, metadata and logs."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        try:
            layout = lay_out(
                self.data_dir,
                brokers=brokers,
                controllers=controllers,
                coordinators=coordinators,
                settings=settings or {},
            )
        except BaseException:
            self._remove()
            raise
        self.servers: Mapping[str, EmbeddedServer] = {server.name: server for server in layout.servers}
        """The servers by name, in the order in which they start."""
        self.bootstrap_servers = ",".join(layout.grpc_addresses)
        """The host:port of each broker for Klamm's own clients."""
        self.kafka_bootstrap_servers = ",".join(layout.kafka_addresses)
        """The host:port of each broker for Kafka clients."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def start(self) -> None:
        """Starts the servers that do not run. Returns when all of them serve.

        If a server does not, raises ServerNotReadyError with the end of its log."""
        self._start(self.servers.values())

    def close(self) -> None:
        """Ends the servers. With a given `data_dir`, they stop in order. Otherwise they are killed, and the directory
        is removed."""
        if self._removed_dir is None:
            self.resume()
            self.stop()
        else:
            self.kill()
            self._remove()

    def kill(self, name: str | None = None) -> None:
        """Kills a server like kill -9, or all of them without a name. Raises ConfigError for an unknown name."""
        for server in self._named(name):
            server.kill()

    def stop(self, name: str | None = None) -> None:
        """Stops a server like an operator, so that it first hands over its work. Without a name, stops all of them.

        Raises ConfigError for an unknown name."""
        for server in reversed(self._named(name)):
            server.stop()

    def restart(self, name: str | None = None) -> None:
        """Starts a killed, stopped or running server again, with its old port and directory. Without a name, restarts
        all of them.

        Returns when it serves. Raises ConfigError for an unknown name, and ServerNotReadyError if it does not serve."""
        self.stop(name)
        self._start(self._named(name))

    def pause(self, name: str | None = None) -> None:
        """Freezes a server until `resume`: connections stay open, but it answers nothing. Without a name, freezes all
        of them.

        Raises ConfigError for an unknown name."""
        for server in self._named(name):
            server.pause()

    def resume(self, name: str | None = None) -> None:
        """Lets a paused server continue. Without a name, all of them continue. Raises ConfigError for an unknown
        name.
        """
        for server in self._named(name):
            server.resume()

    def _start(self, servers: Iterable[EmbeddedServer]) -> None:
        ends_s = time.monotonic() + START_TIMEOUT_S
        starting = list(servers)
        # Without a controller, brokers and coordinators would only log errors.
        first = [server for server in starting if server.name.startswith("controller-")]
        for group in (first, [server for server in starting if server not in first]):
            for server in group:
                server.start()
            for server in group:
                server.wait_ready(max(0.0, ends_s - time.monotonic()))

    def _named(self, name: str | None) -> list[EmbeddedServer]:
        if name is None:
            return list(self.servers.values())
        if name not in self.servers:
            raise ConfigError(f"no server is named {name!r}, expected one of {', '.join(self.servers)}")
        return [self.servers[name]]

    def _remove(self) -> None:
        if self._removed_dir is not None:
            shutil.rmtree(self._removed_dir, ignore_errors=True)
