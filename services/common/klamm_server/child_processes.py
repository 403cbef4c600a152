"""Servers as child processes: starts them, reports when they serve, restarts a process that ends, and stops them.

The child processes never outlive this process: their standard input is a pipe from it, and they end as if killed when
the pipe closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from klamm.errors import KlammError
from klamm.security.material import load_material
from klamm.security.tls_settings import ListenerTlsSettings
from klamm_server.rpc.health_watch import wait_health
from klamm_server.runtime.restart_backoff import RestartBackoff

log = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 30.0
"""A process that has not stopped after this many seconds is killed."""

RETRY_S: Final = 1.0
"""The time between attempts to read a certificate."""


class NotStartedError(KlammError):
    """Raised if a process ended before it served. The process has printed the reason on stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A server that runs as `python -m <arguments>`."""

    name: str
    """The name of the process in messages, such as `broker 2`."""
    arguments: Sequence[str]
    address: str
    """The address at which the server tells its health, as host:port."""
    tls: ListenerTlsSettings | None
    """The TLS settings with which this process dials `address`, or None without TLS."""
    environment: Mapping[str, str]


class ChildProcess:
    """One child process, including its restarts."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self._process: Process | None = None

    async def start(self) -> None:
        package, *arguments = self.spec.arguments
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            package,
            "--die-with-parent",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            env=self.spec.environment,
            # Ctrl-C must only reach this process, which stops the others in order.
            start_new_session=True,
        )

    async def wait(self) -> int:
        """Waits until the process ends. Returns its exit status, or minus the signal."""
        assert self._process is not None
        return await self._process.wait()

    async def wait_health(self, serving: bool) -> None:
        """Waits until the server serves, or until it does not. It may be between two starts. A certificate that cannot
        be read may be replaced soon, so the method tries again."""
        while True:
            try:
                material = None if self.spec.tls is None else load_material(self.spec.tls, now=datetime.now(UTC))
            except KlammError as error:
                log.warning("could not ask %s for its health, retrying in %.0f s: %s", self.spec.name, RETRY_S, error)
                if not serving:
                    return
                await asyncio.sleep(RETRY_S)
            else:
                await wait_health(self.spec.address, material, serving=serving)
                return

    async def wait_started(self) -> None:
        """Waits until the process serves. Raises NotStartedError if it ends first."""
        serving = asyncio.create_task(self.wait_health(serving=True), name=f"health of {self.spec.name}")
        ended = asyncio.create_task(self.wait(), name=f"end of {self.spec.name}")
        try:
            await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                raise NotStartedError(f"{self.spec.name} ended during startup")
            await serving
        finally:
            serving.cancel()
            ended.cancel()

    async def keep_running(self) -> None:
        """Restarts the process whenever it ends."""
        clock = asyncio.get_running_loop().time
        backoff = RestartBackoff()
        started_s = clock()
        while True:
            status = await self.wait()
            pause_s = backoff.pause_s(ran_s=clock() - started_s)
            log.warning("%s ended with status=%d and restarts in %.0f s", self.spec.name, status, pause_s)
            await asyncio.sleep(pause_s)
            started_s = clock()
            await self.start()
            # A process that ends before it serves has printed the reason. The loop restarts it like any other.
            with contextlib.suppress(NotStartedError):
                await self.wait_started()
                log.info("%s serves again", self.spec.name)

    async def stop(self) -> int:
        """Stops the process, and kills it after STOP_TIMEOUT_S. Returns its exit status as a shell counts it, 128 more
        than the signal that ended it. Returns 0 if it was never started, or if this SIGTERM ended it before it handled
        signals."""
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            process.terminate()
            try:
                status = await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                log.warning("killing %s, because it did not stop within %.0f s", self.spec.name, STOP_TIMEOUT_S)
                process.kill()
                status = await process.wait()
            if status == -signal.SIGTERM:
                return 0
        assert process.returncode is not None
        return process.returncode if process.returncode >= 0 else 128 - process.returncode


async def start_children(children: Sequence[ChildProcess]) -> None:
    """Starts the processes. Returns when all of them serve. Raises NotStartedError if one ends first."""
    await asyncio.gather(*(child.start() for child in children))
    await asyncio.gather(*(child.wait_started() for child in children))


async def keep_children_running(children: Sequence[ChildProcess]) -> None:
    """Restarts each process that ends, until the caller is cancelled."""
    async with asyncio.TaskGroup() as keepers:
        for child in children:
            keepers.create_task(child.keep_running(), name=f"keep {child.spec.name}")


def stop_requested() -> asyncio.Event:
    """Returns an event that SIGTERM and SIGINT set from now on."""
    requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, requested.set)
    return requested


async def run_until(requested: asyncio.Event, running: asyncio.Task[None]) -> None:
    """Returns when the event is set or `running` has ended, and cancels what is left. Raises the error of `running`."""
    stopping = asyncio.create_task(requested.wait(), name="stop-requested")
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.wait({running})
