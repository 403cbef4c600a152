"""Finds the ports on which a cluster on this machine can listen, before any process starts."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Sequence
from typing import Final

from klamm.errors import KlammError
from klamm_server.net.bound_sockets import bound_sockets

KAFKA_PORT_STEP: Final = 10
"""The step between the Kafka ports of brokers. The ports are 9092, 9102, 9112, so that eight gRPC ports from 9094 on
fit in between."""
SERVERS_PORT_STEP: Final = 70
"""The step between the port of a server of a secured cluster and the port that other servers dial."""


def consecutive(port: int, count: int, step: int = 1) -> list[int]:
    """Returns `count` ports from `port` on, `step` apart. Returns zeros if `port` is 0."""
    return [port + number * step if port else 0 for number in range(count)]


def kafka_ports(port: int, count: int, *, taken: Collection[int]) -> list[int]:
    """Returns the ports at which `count` brokers listen for Kafka clients, KAFKA_PORT_STEP apart from `port` on. Ports
    in `taken` are left out, because a cluster with many brokers has gRPC ports there. Returns zeros if `port` is 0."""
    if not port:
        return [0] * count
    free = (
        candidate for candidate in itertools.count(port, KAFKA_PORT_STEP) if candidate == port or candidate not in taken
    )
    return list(itertools.islice(free, count))


def servers_port(port: int) -> int:
    """Returns the first port that servers dial, for the first port of gRPC clients. Returns 0 for 0."""
    return port + SERVERS_PORT_STEP if port else 0


def usable_ports(wanted: Sequence[tuple[str, int]]) -> list[int]:
    """Returns the wanted ports, given as (host, port), with a free port for each 0. Servers need their own and each
    other's ports before they listen.

    Raises KlammError if a port is in use. The message names the options that choose other ports."""
    with contextlib.ExitStack() as probes:
        # All ports are held at once, so that no free port is found twice.
        return [_hold(probes, host, port) for host, port in wanted]


def _hold(probes: contextlib.ExitStack, host: str, port: int) -> int:
    try:
        held = bound_sockets(host, port)
    except KlammError as error:
        raise KlammError(f"{error}; choose another with --port, --kafka-port or --host") from error
    for bound_socket in held:
        probes.enter_context(contextlib.closing(bound_socket))
    found: int = held[0].getsockname()[1]
    return found
