"""Computes the processes of a cluster on one machine: their names, settings, ports and directories.

| in the data directory | content                                                           |
|-----------------------|-------------------------------------------------------------------|
| `cluster.properties`  | cluster.id and the number of controllers, from the first start on |
| `controller-<id>/`    | a controller's metadata log                                       |
| `broker-<id>/`        | a broker's partitions                                             |

Ids count from 1 for each kind of server. Ports are consecutive: brokers, then controllers, then coordinators. The ports
of metrics are consecutive too, from `metrics.port` on. In a secured cluster, servers reach each other by a separate
listener.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.errors import ConfigError
from klamm.security.tls_settings import ListenerTlsSettings
from klamm.setting import hint
from klamm_controller.config import ControllerConfig
from klamm_coordinator.config import CoordinatorConfig
from klamm_server.config.broker_configs import BROKER_CONFIGS, BrokerConfig
from klamm_server.config.server_config import ServiceConfig, accepted_configs, known_configs, load

SERVICES: Final[tuple[type[ServiceConfig], ...]] = (ControllerConfig, BrokerConfig, CoordinatorConfig)
REPLICATION_FACTOR_MAX: Final = 3
"""The default replication factor of topics, if there are enough brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """The number of processes of each kind."""

    controllers: int = 1
    brokers: int = 1
    coordinators: int = 1

    @property
    def total(self) -> int:
        return self.controllers + self.brokers + self.coordinators


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process of the cluster, which runs `python -m <package> --set <name>=<value> ...`."""

    package: str
    node_id: int
    address: str
    """The address that clients of the gRPC API dial."""
    servers_address: str
    """The address that other servers dial, as host:port."""
    tls: ListenerTlsSettings | None
    """The TLS settings with which other servers dial `servers_address`, or None without TLS."""
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the process in messages, such as `broker 2`."""
        return f"{self.package.removeprefix('klamm_')} {self.node_id}"


def check_settings(settings: Mapping[str, str]) -> None:
    """Raises ConfigError for a setting that no service knows."""
    properties = {**_ALL_LISTENERS, **settings}
    known = {name for service in SERVICES for name in known_configs(service, properties)}
    if not settings.keys() <= known:
        known |= accepted_configs(BrokerConfig, properties).keys()
    for name in settings:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}{hint(name, known)}")


def known_settings(service: type[ServiceConfig], settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that `service` knows. A broker also gets Kafka's settings that no service reads, because it
    lists them in descriptions."""
    known = known_configs(service, settings)
    if service is BrokerConfig and not settings.keys() <= known.keys():
        accepted = accepted_configs(service, settings)
        known |= {name: setting for name, setting in accepted.items() if not setting.read_by}
    return {name: value for name, value in settings.items() if name in known}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of one process, named after the clients that dial them. None means that there is no such listener."""

    grpc: int
    kafka: int | None = None
    servers: int | None = None
    """The port for other servers in a secured cluster. In other clusters, servers dial the port for gRPC clients."""

    def listeners(self, host: str) -> str:
        """Returns the value of the setting `listeners`. Other servers always dial from this machine."""
        grpc, kafka = f"GRPC://{host}:{self.grpc}", f"KAFKA://{host}:{self.kafka}"
        if self.servers is not None:
            grpc = f"{SERVERS_LISTENER}://{self.servers_address(host)},GRPC_SASL_SSL://{host}:{self.grpc}"
            kafka = f"SASL_SSL://{host}:{self.kafka}"
        return grpc if self.kafka is None else f"{grpc},{kafka}"

    def servers_address(self, host: str) -> str:
        """Returns the address that other servers dial, as host:port."""
        return f"{host}:{self.grpc}" if self.servers is None else f"{LOOPBACK}:{self.servers}"


LOOPBACK: Final = "127.0.0.1"
SERVERS_LISTENER: Final = "INTERNAL"
"""The name of a secured cluster's listener between servers, where they authenticate each other by certificates."""
_ALL_LISTENERS: Final = {"listeners": ",".join(Ports(grpc=0, kafka=0, servers=at).listeners("") for at in (None, 0))}


def lay_out(
    size: ClusterSize,
    *,
    data_dir: Path,
    host: str,
    ports: Sequence[Ports],
    cluster_id: str,
    settings: Mapping[str, str],
) -> list[ProcessSpec]:
    """Returns the processes of the cluster, controllers first. `ports` has the ports of the brokers, then of the
    controllers, then of the coordinators.

    Each of `settings` goes to the services that know it. Raises ConfigError for a setting that no service knows, for a
    value that a service refuses, or for one that would give several processes the same addresses or directories."""
    check_settings(settings)
    _check_shared(size, settings)
    broker_ports = ports[: size.brokers]
    controller_ports = ports[size.brokers : size.brokers + size.controllers]
    coordinator_ports = ports[size.brokers + size.controllers :]
    assert len(coordinator_ports) == size.coordinators, (size, ports)
    controllers = [controller_port.servers_address(host) for controller_port in controller_ports]
    voters = ",".join(f"{node_id}@{address}" for node_id, address in enumerate(controllers, 1))
    # A controller with this setting would join another controller's quorum.
    servers = {"controller.quorum.bootstrap.servers": ",".join(controllers)}
    common = {
        "cluster.id": cluster_id,
        "controller.quorum.voters": voters,
        **_replication(size.brokers),
        # On a machine with one user, a new group need not wait for more members. Kafka's own quickstart sets this too.
        "group.initial.rebalance.delay.ms": "0",
    }

    def specs(service: type[ServiceConfig], package: str, of_kind: Sequence[Ports]) -> Iterator[ProcessSpec]:
        for node_id, own_ports in enumerate(of_kind, 1):
            own = {
                "node.id": str(node_id),
                "listeners": own_ports.listeners(host),
                "metadata.log.dir": str(data_dir / f"controller-{node_id}"),
                "log.dirs": str(data_dir / f"broker-{node_id}"),
            }
            follows = servers if service is not ControllerConfig else {}
            metrics = _metrics_port(settings, ports.index(own_ports))
            chosen = known_settings(service, {**common, **follows, **own, **settings, **metrics})
            yield ProcessSpec(
                package=package,
                node_id=node_id,
                address=f"{host}:{own_ports.grpc}",
                servers_address=own_ports.servers_address(host),
                tls=_tls_between_servers(load(service, chosen)),
                settings=chosen,
            )

    return [
        *specs(ControllerConfig, "klamm_controller", controller_ports),
        *specs(BrokerConfig, "klamm_broker", broker_ports),
        *specs(CoordinatorConfig, "klamm_coordinator", coordinator_ports),
    ]


def _check_shared(size: ClusterSize, settings: Mapping[str, str]) -> None:
    """Raises ConfigError for a setting that several processes would get, although each needs a value of its own."""
    by_address, by_directory = "--host, --port and --kafka-port", "--data-dir"
    for name, count, options in (
        ("listeners", size.total, by_address),
        ("advertised.listeners", size.total, by_address),
        ("metadata.log.dir", size.controllers, by_directory),
        ("log.dirs", size.brokers, by_directory),
    ):
        if name in settings and count > 1:
            raise ConfigError(
                f"{name}: {settings[name]!r} is not valid, because {count} processes would share it, expected {options}"
                f" instead of --set {name}"
            )


def _tls_between_servers(config: ServiceConfig) -> ListenerTlsSettings | None:
    listener = config.resolved_listeners().between_servers
    return config.tls_settings(listener.name) if listener.security.is_encrypted else None


def _metrics_port(settings: Mapping[str, str], index: int) -> dict[str, str]:
    """Returns the setting metrics.port of the process at `index`, or no setting if metrics are off. Raises
    ConfigError."""
    first = BROKER_CONFIGS["metrics.port"].parse(settings.get("metrics.port", "0"))
    assert isinstance(first, int), first
    return {"metrics.port": str(first + index)} if first else {}


def _replication(brokers: int) -> dict[str, str]:
    """Returns the settings of replication. With several brokers, topics survive the loss of one."""
    factor = min(brokers, REPLICATION_FACTOR_MAX)
    return {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "min.insync.replicas": str(max(1, factor - 1)),
    }
