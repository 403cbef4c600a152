"""Checks the addresses of a configuration on this machine. A port is free, in use by Klamm or in use by another
process. A name must resolve."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

from klamm import health
from klamm.errors import KlammError
from klamm_cli.doctor.finding import Finding, ok, problem, warning
from klamm_embedded.ports import usable_ports
from klamm_server.config.server_config import ServiceConfig
from klamm_server.net.listeners import SecurityProtocol

_TIMEOUT_S: Final = 2.0
_LOCAL: Final = "127.0.0.1"
"""The address at which a server that listens on every interface is reached."""


def check_ports(config: ServiceConfig) -> Iterator[Finding]:
    """Checks the ports of one server that runs here, or is to run here."""
    listeners = config.resolved_listeners()
    host, port = listeners.of(SecurityProtocol.GRPC)[0].address
    runs = bool(port) and _is_klamm(host or _LOCAL, port)
    for listener in listeners.bound:
        yield from _check_port(*listener.address, runs, listener.name)
    for name in sorted({listener.host for listener in listeners.advertised}):
        yield from _check_name(name)


def _check_port(host: str, port: int, runs: bool, kind: str) -> Iterator[Finding]:
    if not port:
        return
    where = f"{kind}://{host}:{port}"
    if runs and _connects(host or _LOCAL, port):
        yield ok("ports", f"{where}: the server runs")
        return
    try:
        usable_ports([(host, port)])
    except KlammError as error:
        reason = str(error).partition(";")[0]
        yield problem(
            "ports", f"{where}: {reason}", f"`ss -ltnp 'sport = :{port}'` shows who has it, or change listeners"
        )
    else:
        yield ok("ports", f"{where} is free")


def _is_klamm(host: str, port: int) -> bool:
    try:
        health.check(host, port, service=health.LIVENESS, timeout_s=_TIMEOUT_S)
    except (health.ProbeError, OSError):
        return False
    return True


def _connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _check_name(host: str) -> Iterator[Finding]:
    try:
        socket.getaddrinfo(host.strip("[]"), None)
    except OSError as error:
        yield warning(
            "listeners",
            f"{host}, which others are told to dial, does not resolve here: {error.strerror}",
            "set advertised.listeners to a name or address that all clients and servers resolve",
        )
