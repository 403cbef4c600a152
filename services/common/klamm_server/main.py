"""The life of a service process: configuration, start, signals, stop, and the exit status that tells how it went.

Every service package has a server with `open`, `register`, `start` and `stop` (the `Server` protocol below) and a
`__main__` that calls `main`. Exit statuses: 0 after a graceful stop; 1 when the configuration or the start failed,
with one line on stderr that says what to do; 70 (faults.fatal) when an invariant broke.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import uvloop

from klamm.errors import KlammError
from klamm.properties import parse_properties, read_properties
from klamm_server.config.environment import environment_properties, listeners_in
from klamm_server.config.server_config import (
    MIGRATION,
    ServiceConfig,
    accepted_configs,
    describe,
    known_configs,
    load_layers,
    log_effective,
)
from klamm_server.metrics.process_metrics import measure_event_loop, name_server
from klamm_server.net.listeners import Listener, SecurityProtocol
from klamm_server.rpc.node_guard import NodeGuard
from klamm_server.rpc.server import RpcServer
from klamm_server.rpc.transport import ServerTransport
from klamm_server.runtime import tracing
from klamm_server.runtime.clock import Clock, SystemClock
from klamm_server.runtime.faults import fatal, require_assertions, watch
from klamm_server.runtime.garbage import collect_seldom
from klamm_server.runtime.logs import set_up_logging
from klamm_server.runtime.open_files import grpc_connections_max, raise_open_files_limit
from klamm_server.security.auditor import Auditor
from klamm_server.security.listeners_tls import ListenersTls
from klamm_server.security.logins.logins import Logins
from klamm_server.security.node_principals import NodePrincipals
from klamm_server.security.peer_principals import PeerPrincipals

if TYPE_CHECKING:
    from klamm_server.metadata.image import MetadataImage
    from klamm_server.metrics.metrics_server import MetricsServer

log = logging.getLogger(__name__)

EXIT_GRACEFUL = 0
EXIT_CANNOT_START = 1
_USERS_INTERVAL_S: Final = 0.1
"""The interval of checks whether users have changed, in seconds. A check is one comparison."""


class Server(Protocol):
    """A service. Its process calls the methods in this order."""

    async def open(self) -> None:
        """Recovers the local state; no network."""

    def register(self, rpc: RpcServer) -> None:
        """Adds the gRPC services of this server."""

    async def start(self, endpoints: Sequence[Listener]) -> None:
        """Begins to serve the gRPC services, and returns when ready. `endpoints` are the addresses that others dial.
        Other servers dial the first one."""

    def loaded_image(self) -> MetadataImage | None:
        """Returns the newest metadata, or None while they may lack decisions from before this server's start."""

    @property
    def auditors(self) -> Sequence[Auditor]:
        """The auditors of this server's logins, decisions and changes. The first one also records logins at the gRPC
        listeners."""

    async def wait_serving(self, wanted: bool) -> None:
        """Waits until the server takes part in the cluster. If not `wanted`, waits until it does not. The server must
        have been started."""

    async def stop(self) -> None:
        """Hands over the server's work, and ends waiting calls and streams. Meanwhile its gRPC services still answer.

        It is also called after an `open` or `start` that failed or was interrupted."""


C = TypeVar("C", bound=ServiceConfig)
MakeServer = Callable[[C, ListenersTls], Server]
TransportOf = Callable[[Any], ServerTransport]
"""Returns the transport of the calls that a server of the process answers."""


Load = Callable[[Mapping[str, str]], C]
"""Returns the configuration with these settings on top."""
ConfigT = TypeVar("ConfigT", bound=ServiceConfig, contravariant=True)


class SeveralProcesses(Protocol[ConfigT]):
    """The options by which a program runs several servers of its kind on one host."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options to those that every server has."""

    def own_settings(self, config: ConfigT, options: argparse.Namespace) -> Mapping[str, str]:
        """Returns the settings by which this process differs from the host's configuration."""

    def run(
        self, config: ConfigT, options: argparse.Namespace, load: Callable[[Mapping[str, str]], ConfigT]
    ) -> int | None:
        """Runs the processes of the host, and returns the exit status. Returns None if this process is a server itself.
        Raises KlammError for a configuration that does not suit several processes."""


def main(
    name: str,
    config_class: type[C],
    make_server: MakeServer[C],
    arguments: Sequence[str] | None = None,
    several: SeveralProcesses[C] | None = None,
) -> int:
    """`<name> [--config FILE] [--set NAME=VALUE]...`; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=name,
        description="Settings have Kafka's names. The command line takes precedence over the environment"
        " (KLAMM_MIN_INSYNC_REPLICAS is min.insync.replicas), and the environment over the file.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="Read settings from this properties file.")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="Set one setting; repeatable.")
    parser.add_argument(
        "--show-config",
        action="store_true",
        help="Print every setting and where it was set, without secrets, and exit.",
    )
    parser.add_argument(
        "--die-with-parent",
        action="store_true",
        help="Die immediately, as after kill -9, when standard input closes, because the parent process"
        " has then ended.",
    )
    if several is not None:
        several.add_options(parser)
    options = parser.parse_args(arguments)
    try:
        require_assertions()
        layers = _layers(config_class, options)
        config = load_layers(config_class, layers)

        def load_on_top(settings: Mapping[str, str]) -> C:
            return load_layers(config_class, {**layers, "--processes": settings})

        if several is not None:
            own = several.own_settings(config, options)
            config = load_on_top(own) if own else config
            if not options.show_config and (status := several.run(config, options, load_on_top)) is not None:
                return status
    except (KlammError, OSError) as error:
        return _cannot_start(error)
    if options.show_config:
        print(*describe(config), sep="\n")  # noqa: T201 - what was asked for
        return EXIT_GRACEFUL
    return run_service(name, make_server, config, die_with_parent=options.die_with_parent)


def _layers(config_class: type[ServiceConfig], options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Returns the settings by the place where they were set. The strongest place is last. Raises ConfigError."""
    file = read_properties(options.config) if options.config else {}
    command_line = parse_properties(options.set, "--set")
    # Each place may set the settings of listeners that another place defines.
    together = {**file, **listeners_in(os.environ), **command_line}
    environment = environment_properties(
        os.environ, known_configs(config_class, together), lambda: accepted_configs(config_class, together)
    )
    return {"file": file, "environment": environment, "command line": command_line}


def run_service(
    name: str,
    make_server: MakeServer[C],
    config: C,
    *,
    die_with_parent: bool = False,
    transport_of: TransportOf | None = None,
) -> int:
    """Runs a server until SIGTERM or SIGINT, and returns the exit status. `name` is used in traces and logs."""
    require_assertions()
    set_up_logging(config.log_level, config.log_format, node=f"{name}-{config.node_id}")
    log_effective(config)
    if config.security_migration_enable:
        log.warning("%s is true: the clients of plaintext listeners are authorized for every operation", MIGRATION)
    raise_open_files_limit()
    collect_seldom()
    try:
        if config.tracing_enable:
            tracing.start(name, config.node_id)
        uvloop.run(serve(make_server, config, die_with_parent=die_with_parent, transport_of=transport_of))
    except (KlammError, OSError) as error:
        return _cannot_start(error)
    except Exception as error:  # noqa: BLE001 - whatever else gets here is our own mistake
        fatal("the service failed", error)
    return EXIT_GRACEFUL


async def serve(
    make_server: MakeServer[C],
    config: C,
    *,
    die_with_parent: bool = False,
    transport_of: TransportOf | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> None:
    """Runs a server on this loop until SIGTERM or SIGINT. Raises KlammError or OSError if it cannot start."""
    asyncio.get_running_loop().set_exception_handler(_on_stray_exception)
    stop_requested = _stop_on_signals()
    if die_with_parent:
        _die_with_stdin()
    tls = ListenersTls(config)
    server = make_server(config, tls)
    auditor = next(iter(server.auditors), None)
    logins = Logins.of(config, SecurityProtocol.GRPC, clock or SystemClock(), rng or random.SystemRandom(), auditor)
    bound = NodePrincipals.parse(config.node_principals)
    listeners = config.resolved_listeners().of(SecurityProtocol.GRPC)
    rpc = RpcServer(
        max_message_bytes=config.socket_request_max_bytes,
        max_concurrent_rpcs=config.max_concurrent_rpcs,
        max_connections=grpc_connections_max() // len(listeners),
        transport=None if transport_of is None else transport_of(server),
        guard=None if bound is None else NodeGuard(bound, PeerPrincipals(tls).of, auditor),
        servers_listener=config.servers_listener(),
        is_migrating=config.security_migration_enable,
    )
    name_server(config.ROLE.value, config.node_id)
    metrics = _serve_metrics(config) if config.metrics_port else None
    measuring = watch(asyncio.create_task(measure_event_loop(), name="event-loop-lag")) if metrics else None
    watching = [watch(asyncio.create_task(tls.watch(), name="certificates"))]
    watching += [watch(asyncio.create_task(server_auditor.run(), name="audit")) for server_auditor in server.auditors]
    if logins.are_wanted:
        watching += [
            watch(asyncio.create_task(logins.run(), name="logins")),
            watch(asyncio.create_task(_follow_users(server, logins), name="users")),
        ]
    reporting: asyncio.Task[None] | None = None
    try:
        await server.open()
        server.register(rpc)
        ports = {
            listener.name: await rpc.start(
                listener.host, listener.port, listener.name, tls.of(listener.name), logins.at(listener.name)
            )
            for listener in listeners
        }
        if not await _start_unless_stopped(server, config.resolved_listeners().dialled(ports), stop_requested):
            return
        reporting = watch(asyncio.create_task(rpc.report_health(server.wait_serving), name="health"))
        log.info("ready %s", " ".join(f"port={port}" for port in ports.values()))
        await stop_requested.wait()
    finally:
        log.info("stopping")
        if reporting is not None:
            reporting.cancel()
        await rpc.become_unhealthy()
        for auditor in server.auditors:
            # Flush before the stop, while there may still be brokers that accept the events.
            await auditor.flush()
        await server.stop()
        await rpc.stop(config.shutdown_grace_ms / 1000)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        for auditor in server.auditors:
            await auditor.close()
        logins.close()
        if measuring is not None:
            measuring.cancel()
        if metrics is not None:
            metrics.close()
        log.info("stopped")


async def _follow_users(server: Server, logins: Logins) -> None:
    """Applies the users of the newest metadata to the logins, until it is cancelled."""
    while True:
        image = server.loaded_image()
        if image is not None:
            logins.on_image(image)
        await asyncio.sleep(_USERS_INTERVAL_S)


def _serve_metrics(config: ServiceConfig) -> MetricsServer:
    # Import here, because only a process with metrics needs it (see instruments.py for its cost).
    from klamm_server.metrics.metrics_server import MetricsServer

    return MetricsServer(config.resolved_metrics_host(), config.metrics_port)


async def _start_unless_stopped(server: Server, endpoints: Sequence[Listener], stop_requested: asyncio.Event) -> bool:
    """Starts the server. Returns False if a signal requested the stop first, because a start may wait for a controller
    for ever."""
    starting = asyncio.create_task(server.start(endpoints), name="start")
    stopping = asyncio.create_task(stop_requested.wait(), name="stop-requested")
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    await asyncio.wait({starting})
    return False


def _stop_on_signals() -> asyncio.Event:
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    return stop_requested


def _die_with_stdin() -> None:
    """Ends this process when standard input ends. It is a pipe from the parent process, which ends with the parent.

    No process is left then to stop the services in their order, so each would wait for the others for ever."""

    def on_readable() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            log.error("the parent process ended, so this process ends too")
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), on_readable)


def _on_stray_exception(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Handles an exception of a callback, which no caller sees. An AssertionError means broken state and is fatal."""
    error = context.get("exception")
    if isinstance(error, AssertionError):
        fatal(str(context.get("message")), error)
    loop.default_exception_handler(context)


def _cannot_start(error: Exception) -> int:
    print(f"klamm: {error}", file=sys.stderr)  # noqa: T201 - the one line for the person who started the process
    return EXIT_CANNOT_START
