"""A cluster of real servers in a simulated world, and the clients that use it.

Each server runs `klamm_server.main.serve`, as its process does. It has a machine of its own, with a disk that outlives
it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from klamm.rpc.transport import TRANSPORT
from klamm_broker.server import BrokerServer
from klamm_controller.config import ControllerConfig
from klamm_controller.server import ControllerServer
from klamm_coordinator.config import CoordinatorConfig
from klamm_coordinator.server import CoordinatorServer
from klamm_embedded.layout import REPLICATION_FACTOR_MAX, ClusterSize, known_settings
from klamm_server.config.broker_configs import BrokerConfig
from klamm_server.config.server_config import ServiceConfig, load
from klamm_server.main import Server, serve
from klamm_server.security.listeners_tls import ListenersTls
from tests.world.database import StoredKeys, database_opener
from tests.world.disk import SimDisk
from tests.world.file_system import FileSystem
from tests.world.kernel import ProcessEnded, Timings, World
from tests.world.network import Network
from tests.world.process import Host, SimProcess
from tests.world.transport import SimTransport

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
PORTS = {"controller": 9093, "broker": 9092, "coordinator": 9095}
PATIENCE_S = 300
"""The virtual seconds after which a client that is not done counts as stuck."""


@dataclass
class Machine:
    """The machine of one server, with the server's configuration and the content of its disks."""

    host: Host
    files: FileSystem
    config: ServiceConfig
    make: Callable[[Machine, SimProcess, ListenersTls, SimTransport], Server]
    databases: dict[str, StoredKeys] = field(default_factory=dict)
    leaked_tasks: list[str] = field(default_factory=list)
    """The tasks that were there after the last orderly stop."""


@dataclass
class ClientRun:
    """A client program, and how it ended."""

    process: SimProcess
    is_done: bool = False
    result: Any = None
    error: BaseException | None = None


class Cluster:
    """Servers and clients in one world."""

    def __init__(
        self,
        seed: int,
        size: ClusterSize,
        settings: Mapping[str, str] | None = None,
        timings: Timings | None = None,
        *,
        keeps_trace: bool = False,
    ) -> None:
        self.world = World(seed, timings, keeps_trace=keeps_trace)
        self.network = Network(self.world)
        self.size = size
        self.machines: dict[str, Machine] = {}
        for kind, node_id, config in _configs(size, settings or {}):
            host = self.network.host(f"{kind}-{node_id}")
            self.machines[host.name] = Machine(host, FileSystem(self.world, host), config, _MAKERS[kind])

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"broker-{node_id}:{PORTS['broker']}" for node_id in range(1, self.size.brokers + 1))

    # Servers

    def start(self, *names: str) -> None:
        """Starts these servers, or all if none is named."""
        for name in names or self.machines:
            machine = self.machines[name]
            process = machine.host.start(self._enter)
            process.at_death.append(machine.files.on_process_died)
            process.spawn(self._serve(machine, process), name)

    def stop(self, name: str) -> None:
        """Sends SIGTERM."""
        self.process(name).signal(signal.SIGTERM)

    def kill(self, name: str) -> None:
        self.process(name).die("kill -9")

    def cut_power(self, name: str) -> None:
        """Switches a machine off."""
        machine = self.machines[name]
        if machine.host.is_running:
            self.kill(name)
        lost = machine.files.lose_power(self.world.rng)
        lost += sum(stored.lose_power(self.world.rng) for stored in machine.databases.values())
        self.world.note("power", name, lost)

    def is_running(self, name: str) -> bool:
        return self.machines[name].host.is_running

    def process(self, name: str) -> SimProcess:
        """Returns the present process of a server, or the last one."""
        process = self.machines[name].host.process
        assert process is not None, f"{name} was never started"
        return process

    def _enter(self, process: SimProcess) -> None:
        TRANSPORT.set(SimTransport(self.network, process))

    async def _serve(self, machine: Machine, process: SimProcess) -> None:
        transport = SimTransport(self.network, process)
        try:
            await serve(
                lambda _, tls: machine.make(machine, process, tls, transport),
                machine.config,
                transport_of=lambda _: transport,
                clock=process,
                rng=process.rng,
            )
        except Exception as error:
            logging.getLogger(__name__).exception("%s failed", process.name)
            self.world.deaths.append(f"{process.name}: {error!r}")
        own = asyncio.current_task()
        machine.leaked_tasks = sorted(task.get_name() for task in asyncio.all_tasks() if task is not own)
        process.die("stopped")

    # Clients

    def client(self, name: str, program: Callable[..., Awaitable[Any]], *arguments: Any) -> ClientRun:
        """Starts a client program on a machine of its own."""
        process = self.network.host(name).start(self._enter)
        run = ClientRun(process)
        process.spawn(_run_client(run, program(*arguments)), name)
        return run

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        return self.world.run(seconds, until)

    def finish(self, *runs: ClientRun, seconds: float = PATIENCE_S) -> None:
        """Lets time pass until the clients are done. Raises the first error of one, or AssertionError if they take too
        long."""
        assert self.run(seconds, lambda: all(run.is_done for run in runs)), f"not done after {seconds} virtual seconds"
        for run in runs:
            if run.error is not None:
                raise run.error


async def _run_client(run: ClientRun, program: Awaitable[Any]) -> None:
    try:
        run.result = await program
    except ProcessEnded:
        raise
    except BaseException as error:  # noqa: BLE001 - the runner raises it
        run.error = error
    run.is_done = True


def _configs(size: ClusterSize, settings: Mapping[str, str]) -> Iterator[tuple[str, int, ServiceConfig]]:
    controllers = {node_id: f"controller-{node_id}:{PORTS['controller']}" for node_id in _ids(size.controllers)}
    replicas = min(size.brokers, REPLICATION_FACTOR_MAX)
    common = {
        "cluster.id": CLUSTER_ID,
        "controller.quorum.voters": ",".join(f"{node_id}@{address}" for node_id, address in controllers.items()),
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "2",
        "min.insync.replicas": str(max(1, replicas - 1)),
        "group.initial.rebalance.delay.ms": "0",
    }
    follows = {"controller.quorum.bootstrap.servers": ",".join(controllers.values())}
    kinds: tuple[tuple[str, int, type[ServiceConfig], Mapping[str, str]], ...] = (
        ("controller", size.controllers, ControllerConfig, {"metadata.log.dir": "/data/controller"}),
        ("broker", size.brokers, BrokerConfig, {"log.dirs": "/data/broker", **follows}),
        ("coordinator", size.coordinators, CoordinatorConfig, follows),
    )
    for kind, count, service, own in kinds:
        for node_id in _ids(count):
            listeners = f"GRPC://{kind}-{node_id}:{PORTS[kind]}"
            chosen = {**common, **own, "node.id": str(node_id), "listeners": listeners, **settings}
            yield kind, node_id, load(service, known_settings(service, chosen))


def _ids(count: int) -> range:
    return range(1, count + 1)


def _make_controller(machine: Machine, process: SimProcess, tls: ListenersTls, transport: SimTransport) -> Server:
    assert isinstance(machine.config, ControllerConfig)
    return ControllerServer(
        machine.config,
        tls,
        clock=process,
        rng=process.rng,
        disk=SimDisk(machine.files),
        open_database=database_opener(machine.files, machine.databases),
        transport=transport,
    )


def _make_broker(machine: Machine, process: SimProcess, tls: ListenersTls, transport: SimTransport) -> Server:
    assert isinstance(machine.config, BrokerConfig)
    disk = SimDisk(machine.files)
    return BrokerServer(machine.config, tls, clock=process, disk=disk, rng=process.rng, transport=transport)


def _make_coordinator(machine: Machine, process: SimProcess, tls: ListenersTls, transport: SimTransport) -> Server:
    assert isinstance(machine.config, CoordinatorConfig)
    return CoordinatorServer(machine.config, tls, clock=process, rng=process.rng, transport=transport)


_MAKERS = {"controller": _make_controller, "broker": _make_broker, "coordinator": _make_coordinator}
