"""A cluster of several processes on one machine: `klamm up --brokers 3 --controllers 3 --coordinators 2`.

This process starts the others and reports when all of them serve. It restarts a process that ends, like a container's
restart policy. It stops them in an order in which each can still send its last messages to the others.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby, islice, zip_longest
from pathlib import Path

from klamm.errors import KlammError
from klamm.failure_domains import on_host
from klamm_embedded.data_dir import claim
from klamm_embedded.layout import LOOPBACK, ClusterSize, Ports, ProcessSpec, lay_out
from klamm_embedded.ports import consecutive, kafka_ports, servers_port, usable_ports
from klamm_embedded.ready import print_ready
from klamm_embedded.secured import SecuredFiles, require_not_secured
from klamm_server.child_processes import (
    ChildProcess,
    ChildSpec,
    keep_children_running,
    run_until,
    start_children,
    stop_requested,
)
from klamm_server.config.broker_configs import BROKER_CONFIGS
from klamm_server.config.environment import without_settings
from klamm_server.main import EXIT_CANNOT_START, EXIT_GRACEFUL
from klamm_server.runtime.logs import set_up_logging


async def supervise(specs: Sequence[ProcessSpec], on_ready: Callable[[], None]) -> None:
    """Runs the processes until SIGTERM or SIGINT. They start in the order of `specs`, controllers first, and stop in
    reverse order.

    Raises NotStartedError if a process does not start."""
    requested = stop_requested()
    children = [ChildProcess(_child(spec)) for spec in specs]
    try:
        await run_until(requested, asyncio.create_task(_run(children, on_ready), name="run"))
    finally:
        for _, group in groupby(reversed(children), key=_package):
            await asyncio.gather(*(child.stop() for child in group))


def _package(child: ChildProcess) -> str:
    return child.spec.arguments[0]


async def _run(children: Sequence[ChildProcess], on_ready: Callable[[], None]) -> None:
    """Runs the processes until cancelled. Raises NotStartedError if one does not start."""
    # Start the controllers first. Without a controller, the other processes would only log failed connections.
    controllers = [child for child in children if _package(child) == "klamm_controller"]
    await start_children(controllers)
    await start_children([child for child in children if child not in controllers])
    on_ready()
    await keep_children_running(children)


def _child(spec: ProcessSpec) -> ChildSpec:
    return ChildSpec(
        name=spec.name,
        arguments=[spec.package, *(f"--set={name}={value}" for name, value in spec.settings.items())],
        address=spec.servers_address,
        tls=spec.tls,
        environment=without_settings(os.environ),
    )


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
            print_ready(
                brokers, [f"{host}:{broker_ports.kafka}" for broker_ports in ports[: size.brokers]], data_dir, security
            )

        asyncio.run(supervise(specs, on_ready))
    except KlammError as error:
        print(f"klamm: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_CANNOT_START
    return EXIT_GRACEFUL


def _ports(size: ClusterSize, host: str, port: int, kafka_port: int, *, is_secured: bool) -> list[Ports]:
    """Returns the ports of the brokers, controllers and coordinators, in this order."""
    own = consecutive(servers_port(port), size.total) if is_secured else []
    others = consecutive(port, size.total)
    wanted = [
        *((host, other) for other in others),
        *((host, broker_port) for broker_port in kafka_ports(kafka_port, size.brokers, taken=[*others, *own])),
        *((LOOPBACK, own_port) for own_port in own),
    ]
    found = iter(usable_ports(wanted))
    grpc, kafka = list(islice(found, size.total)), list(islice(found, size.brokers))
    return [
        Ports(grpc=for_grpc, kafka=for_kafka, servers=for_servers)
        for for_grpc, for_kafka, for_servers in zip_longest(grpc, kafka, found)
    ]


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
    if size.brokers > 1:
        given = {**given, "broker.rack": on_host(given.get("broker.rack"), socket.gethostname())}
    make = partial(lay_out, size, data_dir=data_dir, host=host, ports=ports, settings=given)
    # Check the settings first, so that refused settings do not change the directory.
    make(cluster_id="unclaimed")
    specs = make(cluster_id=claim(data_dir, size))
    if security is not None:
        controllers = [spec.settings["metadata.log.dir"] for spec in specs if spec.package == "klamm_controller"]
        security.prepare([Path(controller) for controller in controllers], [host])
    return specs
