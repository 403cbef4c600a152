"""The processes of a test's cluster, their commands and their addresses."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from klamm.errors import ConfigError
from klamm.testing.server import EmbeddedServer

HOST: Final = "127.0.0.1"
ONE_PROCESS: Final = "klamm"
"""The name of the process that runs controller, broker and coordinator together."""


class Layout(NamedTuple):
    """The processes in the order in which they start, and the brokers' addresses for clients (host:port)."""

    servers: Sequence[EmbeddedServer]
    grpc_addresses: Sequence[str]
    kafka_addresses: Sequence[str]


def lay_out(
    data_dir: Path, *, brokers: int, controllers: int, coordinators: int, settings: Mapping[str, str]
) -> Layout:
    """Returns the processes of a cluster of that size, on ports that are free now.

    Raises ConfigError for a setting that no server has, and if `klamm[server]` is not installed."""
    try:
        import klamm_embedded.data_dir
        import klamm_embedded.layout
        import klamm_embedded.ports
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'klamm[server]'") from error
    klamm_embedded.layout.check_settings(settings)
    size = klamm_embedded.layout.ClusterSize(controllers=controllers, brokers=brokers, coordinators=coordinators)
    ports = klamm_embedded.ports.usable_ports([(HOST, 0)] * (size.total + brokers))
    if size == klamm_embedded.layout.ClusterSize():
        return _one_process(data_dir, ports[0], ports[-1], settings)
    grpc, kafka = ports[: size.total], ports[size.total :]
    specs = klamm_embedded.layout.lay_out(
        size,
        data_dir=data_dir,
        host=HOST,
        ports=[
            klamm_embedded.layout.Ports(grpc=port, kafka=kafka[number] if number < brokers else None)
            for number, port in enumerate(grpc)
        ],
        cluster_id=klamm_embedded.data_dir.claim(data_dir, size),
        settings=settings,
    )
    return Layout(
        [
            EmbeddedServer(
                spec.name.replace(" ", "-"),
                [sys.executable, "-m", spec.package, "--die-with-parent", *_assignments(spec.settings)],
                spec.address,
                data_dir / f"{spec.name.replace(' ', '-')}.log",
            )
            for spec in specs
        ],
        [f"{HOST}:{port}" for port in grpc[:brokers]],
        [f"{HOST}:{port}" for port in kafka],
    )


def _one_process(data_dir: Path, grpc_port: int, kafka_port: int, settings: Mapping[str, str]) -> Layout:
    command = [sys.executable, "-m", "klamm", "up", "--die-with-parent", f"--data-dir={data_dir / 'data'}"]
    command += [f"--port={grpc_port}", f"--kafka-port={kafka_port}", *_assignments(settings)]
    address = f"{HOST}:{grpc_port}"
    server = EmbeddedServer(ONE_PROCESS, command, address, data_dir / f"{ONE_PROCESS}.log")
    return Layout([server], [address], [f"{HOST}:{kafka_port}"])


def _assignments(settings: Mapping[str, str]) -> list[str]:
    return [f"--set={name}={value}" for name, value in settings.items()]
