"""A whole cluster in one process: a controller, a broker and a coordinator on one event loop and one port.

The services are the same as in a cluster of several machines, but call each other within the process. The controller's
log is in RocksDB, and the broker's logs are in segment files. A kill -9 loses no acknowledged record.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.errors import ConfigError, KlammError
from klamm_broker.server import BrokerServer
from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.server import CoordinatorServer
from klamm_embedded.data_dir import check_embedded
from klamm_embedded.layout import LOOPBACK, SERVERS_LISTENER, Ports, check_settings, known_settings
from klamm_embedded.ports import servers_port, usable_ports
from klamm_embedded.ready import print_ready
from klamm_embedded.secured import SecuredFiles, require_not_secured
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import load
from klamm_server.main import EXIT_CANNOT_START, Server, run_service
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, SecurityProtocol, first
from klamm_server.rpc.grpc_server import GrpcServerTransport
from klamm_server.rpc.local_transport import LocalTransport
from klamm_server.rpc.server import RpcServer
from klamm_server.security.auditor import Auditor
from klamm_server.security.listeners_tls import ListenersTls

SERVER_ID: Final = "1"
"""The id of all three servers. Ids are unique only within one kind of server, so they may be equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """The configurations of the three services."""

    controller: ControllerConfig
    broker: BrokerConfig
    coordinator: CoordinatorConfig

    @classmethod
    def make(cls, *, data_dir: Path, host: str, ports: Ports | None, settings: Mapping[str, str]) -> EmbeddedConfig:
        """Makes the configurations of all services. Each service gets those of `settings` that it knows. `ports` is
        None if `settings` has the listeners. Raises ConfigError for a setting that no service knows."""
        check_settings(settings)
        listeners = {} if ports is None else {"listeners": ports.listeners(host)}
        own = {
            "node.id": SERVER_ID,
            **listeners,
            "log.dirs": str(data_dir / "broker"),
            "metadata.log.dir": str(data_dir / "controller"),
            # On a machine with one user, a new group need not wait for more members. Kafka's own quickstart sets this
            # too.
            "group.initial.rebalance.delay.ms": "0",
            **settings,
        }
        # Brokers and coordinators need `controller.quorum.bootstrap.servers`. A controller with this setting would join
        # another controller's quorum.
        controller = load(ControllerConfig, known_settings(ControllerConfig, own))
        wanted = {"controller.quorum.bootstrap.servers": _servers_address(controller), **own}
        return cls(
            controller=controller,
            broker=load(BrokerConfig, known_settings(BrokerConfig, wanted)),
            coordinator=load(CoordinatorConfig, known_settings(CoordinatorConfig, wanted)),
        )


def _servers_address(config: ControllerConfig) -> str:
    """Returns the address at which the servers of this process reach each other, as host:port. Raises ConfigError for
    port 0, because the servers need the address before they listen."""
    listener = config.resolved_listeners().between_servers
    if not listener.port:
        raise ConfigError(
            f"listeners: {listener.name}://{listener.host}:0 is not valid, expected a port other than 0 for the"
            " listener between servers; to listen on free ports, use --port 0 and --host instead"
        )
    return f"{listener.host or LOOPBACK}:{listener.port}"


class EmbeddedCluster:
    """A controller, a broker and a coordinator behind one RpcServer (a `klamm_server.main.Server`)."""

    def __init__(
        self, config: EmbeddedConfig, tls: ListenersTls, on_ready: Callable[[Sequence[Listener]], None]
    ) -> None:
        """`tls` has the TLS contexts of the broker's listeners, which all three servers share. Calls `on_ready` with
        the addresses that clients dial when they can produce records and join groups."""
        self.transport = LocalTransport(GrpcServerTransport(tls=tls.between_servers))
        """The transport of all three servers."""
        self._controller = ControllerServer(config.controller, tls, transport=self.transport)
        self._broker = BrokerServer(config.broker, tls, transport=self.transport)
        self._coordinator = CoordinatorServer(config.coordinator, tls, transport=self.transport)
        self._on_ready = on_ready

    async def open(self) -> None:
        """Recovers all services from disk. Raises KlammError with a one-line message if a directory cannot be used."""
        for service in self._services:
            await service.open()

    def register(self, rpc: RpcServer) -> None:
        """Adds the gRPC services of all three servers to `rpc`."""
        for service in self._services:
            service.register(rpc)

    async def start(self, endpoints: Sequence[Listener]) -> None:
        """Starts all servers. Returns once clients can produce records and join groups."""
        for endpoint in endpoints:
            self.transport.add_address(endpoint.name, f"{endpoint.host}:{endpoint.port}")
        await self._controller.start(endpoints)
        try:
            async with asyncio.TaskGroup() as starting:
                starting.create_task(self._broker.start(endpoints))
                starting.create_task(self._coordinator.start(endpoints))
        except ExceptionGroup as failures:
            # The first failure cancelled the other start, so report the first one.
            raise failures.exceptions[0] from failures
        image = self._broker.loaded_image()
        assert image is not None
        self._on_ready([listener for broker in image.live_brokers() for listener in broker.listeners])

    def loaded_image(self) -> MetadataImage | None:
        """Returns the broker's metadata image. One of the three servers must authenticate clients, and clients use the
        broker's listeners."""
        return self._broker.loaded_image()

    @property
    def auditors(self) -> Sequence[Auditor]:
        """The auditors of all three servers. The broker's auditor comes first, because clients use the broker's
        listeners."""
        return (*self._broker.auditors, *self._controller.auditors, *self._coordinator.auditors)

    async def wait_serving(self, wanted: bool) -> None:
        """Waits until all servers serve. If `wanted` is False, waits until one of them does not serve."""
        waits = [asyncio.create_task(service.wait_serving(wanted)) for service in self._services]
        try:
            await asyncio.wait(waits, return_when=asyncio.ALL_COMPLETED if wanted else asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self) -> None:
        """Stops the servers in reverse order, so that each can still send its last messages to those that started
        before it."""
        for service in reversed(self._services):
            await service.stop()

    @property
    def _services(self) -> tuple[Server, ...]:
        return self._controller, self._broker, self._coordinator


def run(
    *,
    data_dir: Path,
    host: str,
    port: int,
    kafka_port: int,
    settings: Mapping[str, str],
    is_secured: bool = False,
    die_with_parent: bool = False,
) -> int:
    """Runs a cluster until SIGTERM or SIGINT, as `klamm up` does. Returns the exit status.

    Prints one line on stdout when the cluster is ready, or one on stderr if it cannot start."""

    security = SecuredFiles(data_dir) if is_secured else None

    def on_ready(listeners: Sequence[Listener]) -> None:
        grpc, kafka = (list(_for_clients(listeners, protocol)) for protocol in SecurityProtocol)
        print_ready(grpc, kafka, data_dir, security)

    try:
        check_embedded(data_dir)
        if security is None:
            require_not_secured(data_dir)
        ports = None if "listeners" in settings else _ports(host, port, kafka_port, is_secured=is_secured)
        given = {**security.settings(), **settings} if security else settings
        config = EmbeddedConfig.make(data_dir=data_dir, host=host, ports=ports, settings=given)
        if security is not None:
            security.prepare([config.controller.data_path], [host])
    except KlammError as error:
        print(f"klamm: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_CANNOT_START
    return run_service(
        "klamm",
        lambda _, tls: EmbeddedCluster(config, tls, on_ready),
        config.broker,
        die_with_parent=die_with_parent,
        transport_of=lambda cluster: cluster.transport,
    )


def _ports(host: str, port: int, kafka_port: int, *, is_secured: bool) -> Ports:
    own = [(LOOPBACK, servers_port(port))] if is_secured else []
    port, kafka_port, *servers = usable_ports([(host, port), (host, kafka_port), *own])
    return Ports(grpc=port, kafka=kafka_port, servers=servers[0] if servers else None)


def _for_clients(listeners: Sequence[Listener], protocol: SecurityProtocol) -> Iterator[str]:
    """Yields the address of the first listener that clients of the protocol may use, if there is one."""
    found = first((listener for listener in listeners if listener.name != SERVERS_LISTENER), protocol)
    if found is not None:
        yield f"{found.host}:{found.port}"
