"""Ports that a cluster on this machine can listen on, looked for before anything starts."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Final

from klamm.errors import KlammError

KAFKA_PORT_STEP: Final = 10
"""Between the Kafka ports of brokers: 9092, 9102, 9112, so that the gRPC ports from 9094 on fit in between."""


def consecutive(port: int, count: int, step: int = 1) -> list[int]:
    """`count` ports from `port` on; all 0 for 0."""
    return [port + number * step if port else 0 for number in range(count)]


def usable_ports(host: str, wanted: Sequence[int]) -> list[int]:
    """The ports, and a free one for each 0; servers are told theirs, and each other's, before they listen.

    Raises KlammError in words that gRPC does not find when it cannot listen."""
    with contextlib.ExitStack() as probes:
        # All are held at once, so that none is found twice.
        return [_bind(probes, host, port) for port in wanted]


def _bind(probes: contextlib.ExitStack, host: str, port: int) -> int:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        probe = probes.enter_context(contextlib.closing(socket.socket(family, kind, protocol)))
        # As gRPC will do: connections of a process that has just ended are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        found: int = probe.getsockname()[1]
        return found
    except OSError as error:
        raise KlammError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port, --kafka-port or --host"
        ) from error
