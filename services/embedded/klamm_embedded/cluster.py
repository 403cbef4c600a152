"""The whole cluster in one process: the three services of a real one, on one event loop and one port.

Nothing here is a stand-in. The services talk to each other over gRPC as they do between machines, the controller's log is
RocksDB, the broker's are segment files, and a kill -9 loses what it would lose there: nothing acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klamm.errors import ConfigError
from klamm_broker.config import BrokerConfig
from klamm_broker.server import BrokerServer
from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.server import CoordinatorServer
from klamm_server.config import ServiceConfig, known_configs, load
from klamm_server.rpc_server import RpcServer

SERVER_ID: Final = "1"
"""Each kind of server has ids of its own, so one number does for all three."""

_SERVICES: Final[tuple[type[ServiceConfig], ...]] = (ControllerConfig, BrokerConfig, CoordinatorConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """The configurations of the three services."""

    controller: ControllerConfig
    broker: BrokerConfig
    coordinator: CoordinatorConfig

    @classmethod
    def make(cls, *, data_dir: Path, host: str, port: int, settings: Mapping[str, str]) -> EmbeddedConfig:
        """Each of `settings` goes to the services that know it. Raises ConfigError for one that none knows."""
        for name in settings:
            if not any(name in known_configs(service) for service in _SERVICES):
                raise ConfigError(f"unknown configuration {name!r}; `klamm configs describe --broker 1` lists the names")
        common = {"node.id": SERVER_ID, "listeners": f"GRPC://{host}:{port}"}
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
        return cls(
            controller=load(ControllerConfig, _known(ControllerConfig, wanted)),
            broker=load(BrokerConfig, _known(BrokerConfig, wanted)),
            coordinator=load(CoordinatorConfig, _known(CoordinatorConfig, wanted)),
        )


def _known(service: type[ServiceConfig], wanted: Mapping[str, str]) -> dict[str, str]:
    known = known_configs(service)
    return {name: value for name, value in wanted.items() if name in known}


class EmbeddedCluster:
    """Controller, broker and coordinator behind one RpcServer."""

    def __init__(self, config: EmbeddedConfig) -> None:
        self._config = config
        self._controller = ControllerServer(config.controller)
        self._broker = BrokerServer(config.broker)
        self._coordinator = CoordinatorServer(config.coordinator)
        self._rpc = RpcServer(
            max_message_bytes=config.broker.socket_request_max_bytes,
            max_concurrent_rpcs=config.broker.max_concurrent_rpcs,
        )
        self._started: list[Any] = []

    async def start(self) -> None:
        """Recovers what is on disk, listens, and returns when records can be produced and groups joined.

        Raises KlammError with one line when a directory or the port cannot be used."""
        host, port = self._config.broker.advertised.host, self._config.broker.listener.port
        for service in (self._controller, self._broker, self._coordinator):
            self._started.append(service)
            await service.open()
            service.register(self._rpc)
        await self._rpc.start(self._config.broker.listener.host, port)
        await self._controller.start(host, port)
        async with asyncio.TaskGroup() as starting:
            starting.create_task(self._broker.start(host, port))
            starting.create_task(self._coordinator.start(host, port))

    async def stop(self) -> None:
        """Stops in the reverse order: each can still tell the ones before it good-bye."""
        while self._started:
            await self._started.pop().stop()
        await self._rpc.stop(grace_s=1.0)


def free_port(host: str) -> int:
    """A port nobody listens on now; the services must know theirs before they listen."""
    with contextlib.closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
