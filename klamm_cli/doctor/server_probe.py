"""Asks each server of a cluster, at its advertised address, for its health, its clock and its version. The requests run
in parallel, each with a time-out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from klamm import health
from klamm.errors import AuthenticationError, BrokerError
from klamm.wire.v1.common_pb2 import DescribeServerRequest

if TYPE_CHECKING:
    from klamm.admin import ClusterDescription
    from klamm.config import ClientConfig
    from klamm.rpc.client_tls import ClientTls
    from klamm.rpc.login import SaslSource

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """The address of a server to ask."""

    name: str
    """The server's name in findings, for example `broker 1`."""
    host: str
    port: int
    is_kafka: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """A server's answer. An empty error text means that the step succeeded or was not tried."""

    target: ProbeTarget
    not_resolved: str = ""
    not_connected: str = ""
    health: str = ""
    """The status, such as SERVING or NOT_SERVING, or the error if the status is not known."""
    version: str = ""
    """Empty if the server does not report it."""
    skew_ms: int | None = None
    """How far the server's clock is ahead of this machine's clock."""
    uncertainty_ms: int = 0
    """The largest error of `skew_ms`: half of the time that the request took."""
    open_files_max: int = 0
    """0 if the server does not report it."""
    has_authorizer: bool | None = None
    """Whether the server checks access control lists, or None if it does not report that."""
    is_migrating: bool = False
    """Whether the server's setting security.migration.enable is on."""


def targets(cluster: ClusterDescription) -> list[ProbeTarget]:
    """Returns the addresses of the servers that are not fenced. Fenced servers are known not to answer."""
    found = [
        ProbeTarget(name=f"{kind} {server.node_id}", host=server.host, port=server.port)
        for kind, servers in (
            ("controller", cluster.controllers),
            ("broker", cluster.brokers),
            ("coordinator", cluster.coordinators),
        )
        for server in servers
        if not server.fenced and server.host
    ]
    found += [
        ProbeTarget(
            name=f"broker {broker.node_id} for Kafka clients",
            host=broker.kafka_host,
            port=broker.kafka_port,
            is_kafka=True,
        )
        for broker in cluster.brokers
        if broker.kafka_port and not broker.fenced
    ]
    return found


def probe(wanted: Iterable[ProbeTarget], timeout_s: float, config: ClientConfig) -> list[ProbeAnswer]:
    """Asks the servers as a client of that configuration. The answers are in the order of `wanted`. Raises
    ConfigError."""
    from klamm.rpc.client_sasl import client_sasl
    from klamm.rpc.client_tls import client_tls

    means = _Means(client_tls(config), client_sasl(config))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda target: _probe_one(target, timeout_s, means), wanted))


class _Means(NamedTuple):
    """The TLS and SASL settings of connections."""

    tls: ClientTls | None
    sasl: SaslSource | None


def _probe_one(target: ProbeTarget, timeout_s: float, means: _Means) -> ProbeAnswer:
    try:
        socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return ProbeAnswer(target=target, not_resolved=error.strerror or str(error))
    try:
        socket.create_connection((target.host, target.port), timeout=timeout_s).close()
    except OSError as error:
        return ProbeAnswer(target=target, not_connected=error.strerror or str(error))
    return ProbeAnswer(target=target) if target.is_kafka else _ask(target, timeout_s, means)


def _ask(target: ProbeTarget, timeout_s: float, means: _Means) -> ProbeAnswer:
    from klamm.security.contexts import client_context
    from klamm.security.tls_settings import TlsSettings

    context = None if means.tls is None else client_context(TlsSettings(), means.tls.material)
    try:
        status = health.check(target.host, target.port, timeout_s=timeout_s, tls=context)
    except (health.ProbeError, OSError) as error:
        return ProbeAnswer(target=target, health=str(error))
    return _describe(target, status, timeout_s, means)


def _describe(target: ProbeTarget, status: str, timeout_s: float, means: _Means) -> ProbeAnswer:
    from klamm.threads.loop_thread import LoopThread

    return LoopThread.shared().run(_describe_server, target, status, round(1_000 * timeout_s), means)


async def _describe_server(target: ProbeTarget, status: str, timeout_ms: int, means: _Means) -> ProbeAnswer:
    from klamm.cluster.metadata import server_address
    from klamm.rpc.connection import Connection
    from klamm.rpc.grpc_transport import GrpcTransport
    from klamm.rpc.options import SERVERS
    from klamm.wire.v1.common_rpc import SERVER

    address = server_address(target.host, target.port)
    transport = GrpcTransport(tls=means.tls, sasl=means.sasl)
    async with Connection(transport, address, SERVERS, timeout_ms=timeout_ms) as connection:
        stub = connection.stub(SERVER)
        try:
            await stub.describe_server(DescribeServerRequest())  # opens the connection
            began = time.time()
            found = await stub.describe_server(DescribeServerRequest())
            ended = time.time()
        except (BrokerError, AuthenticationError):
            return ProbeAnswer(target=target, health=status)
    return ProbeAnswer(
        target=target,
        health=status,
        version=found.version,
        skew_ms=found.time_ms - round(500 * (began + ended)),
        uncertainty_ms=round(500 * (ended - began)),
        open_files_max=found.open_files_max,
        has_authorizer=found.has_authorizer if found.HasField("has_authorizer") else None,
        is_migrating=found.is_migrating,
    )
