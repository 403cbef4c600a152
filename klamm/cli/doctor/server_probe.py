"""Asks each server of a cluster at the address that it tells others: whether it is there, how it does, what time it
is, which version. All at once, each with a time-out."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from klamm import health
from klamm.wire.v1.common_pb2 import DescribeServerRequest

if TYPE_CHECKING:
    from klamm.admin import ClusterDescription

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An address to try."""

    name: str
    """`broker 1`"""
    host: str
    port: int
    is_kafka: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; empty texts are what went well, or was not asked."""

    target: Target
    not_resolved: str = ""
    not_connected: str = ""
    health: str = ""
    """SERVING, NOT_SERVING..., or why it is not known."""
    version: str = ""
    """Empty: it does not tell."""
    skew_ms: int | None = None
    """How far its clock is ahead of ours."""
    uncertainty_ms: int = 0
    """Of that: half the time that the question took."""
    open_files_max: int = 0
    """0: it does not tell."""


def targets(cluster: ClusterDescription) -> list[Target]:
    """Those that are not fenced: the others are known not to answer."""
    found = [
        Target(name=f"{kind} {each.node_id}", host=each.host, port=each.port)
        for kind, servers in (
            ("controller", cluster.controllers),
            ("broker", cluster.brokers),
            ("coordinator", cluster.coordinators),
        )
        for each in servers
        if not each.fenced and each.host
    ]
    found += [
        Target(
            name=f"broker {each.node_id} for Kafka clients", host=each.kafka_host, port=each.kafka_port, is_kafka=True
        )
        for each in cluster.brokers
        if each.kafka_port and not each.fenced
    ]
    return found


def probe(wanted: Iterable[Target], timeout_s: float) -> list[Answer]:
    """In the order of `wanted`."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda target: _probe_one(target, timeout_s), wanted))


def _probe_one(target: Target, timeout_s: float) -> Answer:
    try:
        socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Answer(target=target, not_resolved=error.strerror or str(error))
    try:
        socket.create_connection((target.host, target.port), timeout=timeout_s).close()
    except OSError as error:
        return Answer(target=target, not_connected=error.strerror or str(error))
    return Answer(target=target) if target.is_kafka else _ask(target, timeout_s)


def _ask(target: Target, timeout_s: float) -> Answer:
    try:
        status = health.check(target.host, target.port, timeout_s=timeout_s)
    except (health.ProbeError, OSError) as error:
        return Answer(target=target, health=str(error))
    return _describe(target, status, timeout_s)


def _describe(target: Target, status: str, timeout_s: float) -> Answer:
    import grpc

    from klamm.cluster import server_address
    from klamm.wire.service import SERVER, Stub

    with grpc.insecure_channel(server_address(target.host, target.port)) as channel:
        stub = Stub(channel, SERVER)
        try:
            stub.describe_server(DescribeServerRequest(), timeout=timeout_s)  # dials
            began = time.time()
            found = stub.describe_server(DescribeServerRequest(), timeout=timeout_s)
            ended = time.time()
        except grpc.RpcError:
            return Answer(target=target, health=status)
    return Answer(
        target=target,
        health=status,
        version=found.version,
        skew_ms=found.time_ms - round(500 * (began + ended)),
        uncertainty_ms=round(500 * (ended - began)),
        open_files_max=found.open_files_max,
    )
