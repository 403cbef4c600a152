"""Sockets at every address that a listener's host stands for, or none at all.

`localhost` is ::1 and 127.0.0.1, and no host is every interface of both families. A server that has only half of them
is found by some clients, while others find the process that has the other half. Left out is only what this machine does
not have: IPv6 where it is switched off.
"""

from __future__ import annotations

import errno
import socket
from typing import Any, Final, NamedTuple

from klamm.errors import KlammError

_ATTEMPTS: Final = 16
"""How often to try to find a port that is free at all addresses."""


class _Address(NamedTuple):
    family: socket.AddressFamily
    host: str
    scope: tuple[Any, ...] = ()
    """The parts of an IPv6 address after the port."""

    @property
    def may_be_missing(self) -> bool:
        return self.host in {"::1", "::"}


_EVERY_INTERFACE: Final = [_Address(socket.AF_INET, "0.0.0.0"), _Address(socket.AF_INET6, "::")]


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Bound and not listening yet, all at one port, which is free everywhere if `port` is 0. `host` is a name, an
    address, an IPv6 address in brackets, or nothing: every interface. Blocks while a name is looked up.

    Raises KlammError, and holds nothing, when one of the addresses cannot be had."""
    try:
        addresses = _addresses(host)
        for _ in range(_ATTEMPTS if not port else 0):
            try:
                return _bind_all(addresses, 0)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        return _bind_all(addresses, port)
    except OSError as error:
        raise KlammError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def _addresses(host: str) -> list[_Address]:
    if host in {"", "[::]"}:
        return _EVERY_INTERFACE
    found = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
    # A name may be in the hosts file twice.
    return list(dict.fromkeys(_Address(family, str(at[0]), tuple(at[2:])) for family, _, _, _, at in found))


def _bind_all(addresses: list[_Address], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for one in addresses:
            try:
                bound.append(_bind(one, port))
                port = bound[0].getsockname()[1]
            except OSError as error:
                if not one.may_be_missing or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                missing = error
        if missing is not None and not bound:
            raise missing
    except OSError:
        for other in bound:
            other.close()
        raise
    return bound


def _bind(address: _Address, port: int) -> socket.socket:
    """Raises OSError that names the address."""
    with_port = f"[{address.host}]:{port}" if address.family is socket.AF_INET6 else f"{address.host}:{port}"
    made: socket.socket | None = None
    try:
        made = socket.socket(address.family, socket.SOCK_STREAM)
        # Connections of a process that has just ended are no obstacle.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address.family is socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address.host, port, *address.scope))
    except OSError as error:
        if made is not None:
            made.close()
        raise OSError(error.errno, f"{error.strerror} ({with_port})") from error
    return made
