"""Runs the broker processes of one host as one server: one start, one health, one stop and one exit status.

The health, at a port of its own, is SERVING while all processes serve. A process that ends is started again. At a stop
the processes end one after the other, the last one first, so that each can hand its leaderships over. The exit status
is the largest of theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from klamm.errors import KlammError
from klamm.setting import INT_MAX
from klamm_broker.processes.layout import (
    PORT_STEP,
    PROCESSES_MAX,
    Place,
    check_ports,
    check_processes,
    found_processes,
    process_settings,
)
from klamm_server.child_processes import (
    ChildProcess,
    ChildSpec,
    keep_children_running,
    run_until,
    start_children,
    stop_requested,
)
from klamm_server.config.broker_configs import FETCH_SESSIONS_PART, BrokerConfig
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.faults import watch
from klamm_server.runtime.logs import set_up_logging
from klamm_server.runtime.usable_cores import usable_cores
from klamm_server.runtime.usable_memory import usable_memory_bytes

log = logging.getLogger(__name__)

_HEALTH_STEP: Final = 9
"""The step from the port between servers of the first process to the port of the host's health."""
_EVERY_INTERFACE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}
Load = Callable[[Mapping[str, str]], BrokerConfig]
"""Loads the configuration with these settings on top."""


class HostProcesses:
    """The options of `klamm-broker` for several processes (a `klamm_server.main.SeveralProcesses`)."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--processes",
            type=_processes,
            metavar="N",
            help="Run N brokers on this host as one server; auto: one for each core that this process may use. Ids"
            f" follow node.id, and ports are {PORT_STEP} apart.",
        )
        parser.add_argument(
            "--health-port",
            type=_port,
            metavar="PORT",
            help="With --processes, tell the health of all processes at this port [default: 9 above the port between"
            " servers].",
        )
        # This process is one of those that `--processes` has started.
        parser.add_argument("--process", type=_place, help=argparse.SUPPRESS)

    def own_settings(self, config: BrokerConfig, options: argparse.Namespace) -> Mapping[str, str]:
        """Returns the settings of this process that differ from the host's configuration. There are none if it runs
        alone."""
        return {} if options.process is None else _settings(config, options.process)

    def run(self, config: BrokerConfig, options: argparse.Namespace, load: Load) -> int | None:
        """Runs all processes of the host until SIGTERM or SIGINT, and returns the exit status. Returns None if this
        process is a broker. Raises KlammError if the processes cannot run with the configuration."""
        if options.processes is None:
            return None
        count = options.processes or max(usable_cores(), found_processes(config.data_dirs))
        check_processes(config, count)
        places = [Place(number, count) for number in range(1, count + 1)]
        configs = [load(_settings(config, place)) for place in places]
        check_ports(configs)
        set_up_logging(config.log_level, config.log_format, node=f"klamm-broker-{config.node_id}-host")
        specs = [_spec(own, place, options) for own, place in zip(configs, places, strict=True)]
        between = config.resolved_listeners().between_servers
        port = between.port + _HEALTH_STEP if options.health_port is None else options.health_port
        return asyncio.run(_supervise(specs, between.host, port))


def _settings(config: BrokerConfig, place: Place) -> dict[str, str]:
    sessions_bytes = usable_memory_bytes() // FETCH_SESSIONS_PART
    return process_settings(config, place, host=socket.gethostname(), memory_bytes=sessions_bytes)


def _spec(config: BrokerConfig, place: Place, options: argparse.Namespace) -> ChildSpec:
    listeners = config.resolved_listeners()
    between = listeners.between_servers
    is_encrypted = between.security.is_encrypted
    # A certificate has the names by which others dial the server. Without TLS, the bound address is nearer.
    dialled = listeners.advertised[listeners.bound.index(between)] if is_encrypted else between
    host = _EVERY_INTERFACE.get(dialled.host, dialled.host)
    file = ["--config", str(options.config)] if options.config else []
    return ChildSpec(
        name=f"broker {config.node_id}",
        arguments=[
            "klamm_broker",
            *file,
            *(f"--set={setting}" for setting in options.set),
            f"--process={place.number}/{place.total}",
        ],
        address=f"{host}:{dialled.port}",
        tls=config.tls_settings(between.name) if is_encrypted else None,
        environment=dict(os.environ),
    )


async def _supervise(specs: Sequence[ChildSpec], host: str, port: int) -> int:
    requested = stop_requested()
    children = [ChildProcess(spec) for spec in specs]
    rpc = RpcServer(max_message_bytes=INT_MAX, max_concurrent_rpcs=1_000)
    port = await rpc.start(host, port)
    reporting = watch(asyncio.create_task(rpc.report_health(lambda serving: _wait_health(children, serving))))
    failed = 0
    try:
        await run_until(requested, asyncio.create_task(_run(children, port), name="run"))
    except KlammError as error:
        print(f"klamm: {error}", file=sys.stderr)  # noqa: T201 - the one line for the person who started the process
        failed = 1
    finally:
        reporting.cancel()
        await rpc.become_unhealthy()
        statuses = [await child.stop() for child in reversed(children)]
        await rpc.stop(0)
    log.info("stopped")
    return max(failed, *statuses)


async def _run(children: Sequence[ChildProcess], health_port: int) -> None:
    await start_children(children)
    log.info("ready, processes=%d health port=%d", len(children), health_port)
    await keep_children_running(children)


async def _wait_health(children: Sequence[ChildProcess], serving: bool) -> None:
    """Waits until all processes serve. If not `serving`, waits until one of them does not."""
    waits = [asyncio.create_task(child.wait_health(serving)) for child in children]
    try:
        await asyncio.wait(waits, return_when=asyncio.ALL_COMPLETED if serving else asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _processes(text: str) -> int:
    """Parses the value of --processes. Returns 0 for `auto`."""
    return 0 if text == "auto" else _number(text, 1, PROCESSES_MAX, ", or auto")


def _port(text: str) -> int:
    return _number(text, 0, 65_535)


def _place(text: str) -> Place:
    number, _, count = text.partition("/")
    return Place(_number(number, 1, PROCESSES_MAX), _number(count, 1, PROCESSES_MAX))


def _number(text: str, least: int, most: int, more: str = "") -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not valid, expected a number from {least} to {most}{more}")
    return int(text)
