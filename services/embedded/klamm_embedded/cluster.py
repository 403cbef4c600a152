"""The whole cluster in one process: the three services of a real one, on one event loop and one port.

Nothing here is a stand-in. The services talk to each other over gRPC as they do between machines, the controller's log
is RocksDB, the broker's are segment files, and a kill -9 loses what it would lose there: nothing acknowledged.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.errors import KlammError
from klamm_broker.config import BrokerConfig
from klamm_broker.server import BrokerServer
from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.server import CoordinatorServer
from klamm_embedded.data_dir import check_embedded
from klamm_embedded.layout import broker_listeners, check_settings, grpc_listener, known_settings
from klamm_embedded.ports import usable_ports
from klamm_embedded.ready import say_ready
from klamm_server.config import load
from klamm_server.listeners import Listener
from klamm_server.main import EXIT_CANNOT_START, Server, run_service
from klamm_server.rpc_server import RpcServer

SERVER_ID: Final = "1"
"""Each kind of server has ids of its own, so one number does for all three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """The configurations of the three services."""

    controller: ControllerConfig
    broker: BrokerConfig
    coordinator: CoordinatorConfig

    @classmethod
    def make(
        cls, *, data_dir: Path, host: str, port: int, kafka_port: int, settings: Mapping[str, str]
    ) -> EmbeddedConfig:
        """Each of `settings` goes to the services that know it. Raises ConfigError for one that none knows."""
        check_settings(settings)
        common = {"node.id": SERVER_ID, "listeners": grpc_listener(host, port)}
        controllers = {"controller.quorum.bootstrap.servers": f"{host}:{port}"}
        directories = {"log.dirs": str(data_dir / "broker"), "metadata.log.dir": str(data_dir / "controller")}
        defaults = {
            **common,
            **controllers,
            **directories,
            # One machine, one user: nobody waits for more members to join, as in Kafka's own quickstart.
            "group.initial.rebalance.delay.ms": "0",
        }
        wanted = {**defaults, **settings}
        # A user's own listeners are the user's business.
        kafka = {} if "listeners" in settings else {"listeners": broker_listeners(host, port, kafka_port)}
        # Brokers and coordinators know that setting too, but to a controller it means to join another one's quorum.
        own = {name: value for name, value in wanted.items() if name in settings or name not in controllers}
        return cls(
            controller=load(ControllerConfig, known_settings(ControllerConfig, own)),
            broker=load(BrokerConfig, known_settings(BrokerConfig, {**wanted, **kafka})),
            coordinator=load(CoordinatorConfig, known_settings(CoordinatorConfig, wanted)),
        )


class EmbeddedCluster:
    """Controller, broker and coordinator behind one RpcServer (a `klamm_server.main.Server`)."""

    def __init__(self, config: EmbeddedConfig, on_ready: Callable[[], None]) -> None:
        self._controller = ControllerServer(config.controller)
        self._broker = BrokerServer(config.broker)
        self._coordinator = CoordinatorServer(config.coordinator)
        self._on_ready = on_ready

    async def open(self) -> None:
        """Recovers what is on disk. Raises KlammError with one line when a directory cannot be used."""
        for service in self._services:
            await service.open()

    def register(self, rpc: RpcServer) -> None:
        """Adds the gRPC services of all three."""
        for service in self._services:
            service.register(rpc)

    async def start(self, endpoints: Sequence[Listener]) -> None:
        """Returns when records can be produced and groups joined."""
        await self._controller.start(endpoints)
        try:
            async with asyncio.TaskGroup() as starting:
                starting.create_task(self._broker.start(endpoints))
                starting.create_task(self._coordinator.start(endpoints))
        except ExceptionGroup as failures:
            # The first failure ended the other start: it is the one to tell.
            raise failures.exceptions[0] from failures
        self._on_ready()

    async def wait_serving(self, wanted: bool) -> None:
        """Wanted, all of them; else any of them is not."""
        waits = [asyncio.create_task(service.wait_serving(wanted)) for service in self._services]
        try:
            await asyncio.wait(waits, return_when=asyncio.ALL_COMPLETED if wanted else asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self) -> None:
        """In the reverse order: each can still tell the ones before it good-bye."""
        for service in reversed(self._services):
            await service.stop()

    @property
    def _services(self) -> tuple[Server, ...]:
        return self._controller, self._broker, self._coordinator


def run(*, data_dir: Path, host: str, port: int, kafka_port: int, settings: Mapping[str, str]) -> int:
    """Runs a cluster until SIGTERM or SIGINT, as `klamm up` does; returns the exit status.

    Prints one line on stdout when it is ready, or one on stderr when it cannot start."""

    def on_ready() -> None:
        say_ready([f"{host}:{port}"], [f"{host}:{kafka_port}"], data_dir)

    try:
        check_embedded(data_dir)
        port, kafka_port = usable_ports(host, [port, kafka_port])
        config = EmbeddedConfig.make(data_dir=data_dir, host=host, port=port, kafka_port=kafka_port, settings=settings)
    except KlammError as error:
        print(f"klamm: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_CANNOT_START
    return run_service("klamm", lambda _: EmbeddedCluster(config, on_ready), config.broker)
