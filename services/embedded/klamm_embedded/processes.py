"""A cluster of several processes on one machine: `klamm up --brokers 3 --controllers 3 --coordinators 2`.

This process starts the others and reports when all of them serve. It restarts a process that ends, like a container's
restart policy. It stops them in an order in which each can still send its last messages to the others. The other
processes never outlive this process: their standard input is a pipe from it, and they end as if killed when the pipe
closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import Final

from klamm.errors import KlammError
from klamm.security.material import load_material
from klamm_embedded.data_dir import claim
from klamm_embedded.layout import LOOPBACK, ClusterSize, Ports, ProcessSpec, lay_out
from klamm_embedded.ports import KAFKA_PORT_STEP, consecutive, servers_port, usable_ports
from klamm_embedded.ready import print_ready
from klamm_embedded.restart_backoff import RestartBackoff
from klamm_embedded.secured import SecuredFiles, require_not_secured
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.environment import without_settings
from klamm_server.main import EXIT_CANNOT_START, EXIT_GRACEFUL
from klamm_server.rpc.health_watch import wait_serving
from klamm_server.runtime.logs import set_up_logging

log = logging.getLogger(__name__)

STOP_TIMEOUT_S: Final = 30.0
"""A process that has not stopped after this many seconds is killed."""


class NotStartedError(KlammError):
    """Raised if a process ended before it served. The process has printed the reason on stderr."""


class _Child:
    """One process of the cluster, including its restarts."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self._process: Process | None = None

    async def start(self) -> None:
        arguments = [f"--set={name}={value}" for name, value in self.spec.settings.items()]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self.spec.package,
            "--die-with-parent",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            env=without_settings(os.environ),
            # Ctrl-C must only reach this process, which stops the others in order.
            start_new_session=True,
        )

    async def wait(self) -> int:
        """Waits until the process ends. Returns its exit status, or minus the signal."""
        assert self._process is not None
        return await self._process.wait()

    async def wait_serving(self) -> None:
        """Waits until the process serves. Raises NotStartedError if it ends first."""
        material = None if self.spec.tls is None else load_material(self.spec.tls, now=datetime.now(UTC))
        waiting = wait_serving(self.spec.servers_address, material)
        serving = asyncio.create_task(waiting, name=f"health of {self.spec.name}")
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
                await self.wait_serving()
                log.info("%s serves again", self.spec.name)

    async def stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            log.warning("killing %s, because it did not stop within %.0f s", self.spec.name, STOP_TIMEOUT_S)
            process.kill()
            await process.wait()


async def supervise(specs: Sequence[ProcessSpec], on_ready: Callable[[], None]) -> None:
    """Runs the processes until SIGTERM or SIGINT. They start in the order of `specs`, controllers first, and stop in
    reverse order.

    Raises NotStartedError if a process does not start."""
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    children = [_Child(spec) for spec in specs]
    running = asyncio.create_task(_run(children, on_ready), name="run")
    stopping = asyncio.create_task(stop_requested.wait(), name="stop-requested")
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.wait({running})
        for _, group in groupby(reversed(children), key=lambda child: child.spec.package):
            await asyncio.gather(*(child.stop() for child in group))


async def _run(children: Sequence[_Child], on_ready: Callable[[], None]) -> None:
    """Runs the processes until cancelled. Raises NotStartedError if one does not start."""
    # Start the controllers first. Without a controller, the other processes would only log failed connections.
    controllers = [child for child in children if child.spec.package == "klamm_controller"]
    for group in (controllers, [child for child in children if child not in controllers]):
        await asyncio.gather(*(child.start() for child in group))
        await asyncio.gather(*(child.wait_serving() for child in group))
    on_ready()
    async with asyncio.TaskGroup() as keepers:
        for child in children:
            keepers.create_task(child.keep_running(), name=f"keep {child.spec.name}")


def run(
    size: ClusterSize,
    *,
    data_dir: Path,
    host: str,
    port: int,
    kafka_port: int,
    settings: Mapping[str, str],
    is_secured: bool = False,
) -> int:
    """Runs the cluster until SIGTERM or SIGINT. Returns the exit status.

    Prints one line on stdout when the cluster is ready, or one on stderr if it cannot start."""
    try:
        level, log_format = (str(BROKER_CONFIGS[name].parse(settings[name])) for name in ("log.level", "log.format"))
        set_up_logging(level, log_format, node="klamm-up")
        security = SecuredFiles(data_dir) if is_secured else None
        ports = _ports(size, host, port, kafka_port, is_secured=is_secured)
        specs = _specs(size, data_dir, host, ports, settings, security)
        brokers = [spec.address for spec in specs if spec.package == "klamm_broker"]

        def on_ready() -> None:
            print_ready(brokers, [f"{host}:{each.kafka}" for each in ports[: size.brokers]], data_dir, security)

        asyncio.run(supervise(specs, on_ready))
    except KlammError as error:
        print(f"klamm: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_CANNOT_START
    return EXIT_GRACEFUL


def _ports(size: ClusterSize, host: str, port: int, kafka_port: int, *, is_secured: bool) -> list[Ports]:
    """Returns the ports of the brokers, controllers and coordinators, in this order."""
    own = [(LOOPBACK, each) for each in consecutive(servers_port(port), size.total)] if is_secured else []
    wanted = [
        *((host, each) for each in consecutive(port, size.total)),
        *((host, each) for each in consecutive(kafka_port, size.brokers, KAFKA_PORT_STEP)),
        *own,
    ]
    found = iter(usable_ports(wanted))
    grpc, kafka = list(islice(found, size.total)), list(islice(found, size.brokers))
    return [Ports(grpc=one, kafka=two, servers=three) for one, two, three in zip_longest(grpc, kafka, found)]


def _specs(
    size: ClusterSize,
    data_dir: Path,
    host: str,
    ports: Sequence[Ports],
    settings: Mapping[str, str],
    security: SecuredFiles | None,
) -> list[ProcessSpec]:
    if security is None:
        require_not_secured(data_dir)
    given = {**security.settings(), **settings} if security else settings
    make = partial(lay_out, size, data_dir=data_dir, host=host, ports=ports, settings=given)
    # Check the settings first, so that refused settings do not change the directory.
    make(cluster_id="unclaimed")
    specs = make(cluster_id=claim(data_dir, size))
    if security is not None:
        controllers = [spec.settings["metadata.log.dir"] for spec in specs if spec.package == "klamm_controller"]
        security.prepare([Path(each) for each in controllers], [host])
    return specs
