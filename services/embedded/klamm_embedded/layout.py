"""Which processes a cluster on one machine has: their names, settings, ports and directories. Pure.

| in the data directory | what                                                             |
|-----------------------|------------------------------------------------------------------|
| `cluster.properties`  | cluster.id and the number of controllers, from the first start on |
| `controller-<id>/`    | a controller's metadata log                                       |
| `broker-<id>/`        | a broker's partitions                                             |

Ids count from 1 for each kind of server. Ports are consecutive: brokers, then controllers, then coordinators. So are
those of metrics, from `metrics.port` on.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.errors import ConfigError
from klamm_broker.config import BrokerConfig
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.broker_configs import BROKER_CONFIGS
from klamm_server.config import ServiceConfig, known_configs, load

SERVICES: Final[tuple[type[ServiceConfig], ...]] = (ControllerConfig, BrokerConfig, CoordinatorConfig)
REPLICATION_FACTOR_MAX: Final = 3
"""What topics get by default when there are brokers enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """How many processes of each kind."""

    controllers: int = 1
    brokers: int = 1
    coordinators: int = 1

    @property
    def total(self) -> int:
        return self.controllers + self.brokers + self.coordinators


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process: `python -m <package> --set <name>=<value> ...`."""

    package: str
    node_id: int
    host: str
    port: int
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """`broker 2`"""
        return f"{self.package.removeprefix('klamm_')} {self.node_id}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def check_settings(settings: Mapping[str, str]) -> None:
    """Raises ConfigError for a setting that no service knows."""
    for name in settings:
        if not any(name in known_configs(service) for service in SERVICES):
            raise ConfigError(_unknown(name))


def known_settings(service: type[ServiceConfig], settings: Mapping[str, str]) -> dict[str, str]:
    """Those of `settings` that `service` has."""
    known = known_configs(service)
    return {name: value for name, value in settings.items() if name in known}


def grpc_listener(host: str, port: int) -> str:
    return f"GRPC://{host}:{port}"


def broker_listeners(host: str, port: int, kafka_port: int) -> str:
    """For both kinds of clients."""
    return f"{grpc_listener(host, port)},KAFKA://{host}:{kafka_port}"


def lay_out(
    size: ClusterSize,
    *,
    data_dir: Path,
    host: str,
    ports: Sequence[int],
    cluster_id: str,
    settings: Mapping[str, str],
    kafka_ports: Sequence[int] = (),
) -> list[ProcessSpec]:
    """The processes, controllers first; `ports` has one for each: brokers', controllers', coordinators'. `kafka_ports`
    has one for each broker, or none: then there is no listener for Kafka clients.

    Each of `settings` goes to the services that know it. Raises ConfigError for one that none knows, or for a value
    that a service refuses."""
    check_settings(settings)
    all_ports = list(ports)
    broker_ports = ports[: size.brokers]
    controller_ports = ports[size.brokers : size.brokers + size.controllers]
    coordinator_ports = ports[size.brokers + size.controllers :]
    assert len(coordinator_ports) == size.coordinators, (size, ports)
    voters = ",".join(f"{node_id}@{host}:{port}" for node_id, port in enumerate(controller_ports, 1))
    # To a controller, this setting means to join another one's quorum.
    servers = {"controller.quorum.bootstrap.servers": ",".join(f"{host}:{port}" for port in controller_ports)}
    common = {
        "cluster.id": cluster_id,
        "controller.quorum.voters": voters,
        **_replication(size.brokers),
        # One machine, one user: nobody waits for more members to join, as in Kafka's own quickstart.
        "group.initial.rebalance.delay.ms": "0",
    }

    def specs(service: type[ServiceConfig], package: str, ports: Sequence[int]) -> Iterator[ProcessSpec]:
        for node_id, port in enumerate(ports, 1):
            own = {
                "node.id": str(node_id),
                "listeners": grpc_listener(host, port),
                "metadata.log.dir": str(data_dir / f"controller-{node_id}"),
                "log.dirs": str(data_dir / f"broker-{node_id}"),
            }
            if service is BrokerConfig and kafka_ports:
                own["listeners"] = broker_listeners(host, port, kafka_ports[node_id - 1])
            follows = servers if service is not ControllerConfig else {}
            metrics = _metrics_port(settings, all_ports.index(port))
            chosen = known_settings(service, {**common, **follows, **own, **settings, **metrics})
            load(service, chosen)
            yield ProcessSpec(package=package, node_id=node_id, host=host, port=port, settings=chosen)

    return [
        *specs(ControllerConfig, "klamm_controller", controller_ports),
        *specs(BrokerConfig, "klamm_broker", broker_ports),
        *specs(CoordinatorConfig, "klamm_coordinator", coordinator_ports),
    ]


def _metrics_port(settings: Mapping[str, str], index: int) -> dict[str, str]:
    """Of the `index`th process; empty where none shows its metrics. Raises ConfigError."""
    first = BROKER_CONFIGS["metrics.port"].parse(settings.get("metrics.port", "0"))
    assert isinstance(first, int), first
    return {"metrics.port": str(first + index)} if first else {}


def _replication(brokers: int) -> dict[str, str]:
    """Several brokers are there to survive the loss of one."""
    factor = min(brokers, REPLICATION_FACTOR_MAX)
    return {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "min.insync.replicas": str(max(1, factor - 1)),
    }


def _unknown(name: str) -> str:
    nearest = difflib.get_close_matches(name, sorted({each for service in SERVICES for each in known_configs(service)}))
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    return f"no service has a setting {name!r}{hint}"
