"""Sockets at every address that a listener's host stands for, or none at all.

`localhost` is ::1 and 127.0.0.1, and an empty host is every interface of both families. If a server had only one of
them, some clients would reach another process at the other one. Only addresses that this machine does not have are left
out, for example if IPv6 is switched off."""

from __future__ import annotations

import errno
import socket
from typing import Any, Final, NamedTuple

from klamm.errors import KlammError

_ATTEMPTS: Final = 16
"""The number of attempts to find a port that is free at all addresses."""


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
    """Returns bound sockets that do not listen yet, all with one port. Port 0 selects a port that is free at all
    addresses. `host` is a name, an address, an IPv6 address in brackets, or empty for every interface. Blocks while a
    name is looked up.

    If an address cannot be bound, closes all sockets and raises KlammError."""
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
    # A name may occur twice in the hosts file.
    return list(dict.fromkeys(_Address(family, str(at[0]), tuple(at[2:])) for family, _, _, _, at in found))


def _bind_all(addresses: list[_Address], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for address in addresses:
            try:
                bound.append(_bind(address, port))
                port = bound[0].getsockname()[1]
            except OSError as error:
                if not address.may_be_missing or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
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
    """Returns a socket that is bound to the address. Raises OSError, which names the address."""
    with_port = f"[{address.host}]:{port}" if address.family is socket.AF_INET6 else f"{address.host}:{port}"
    made: socket.socket | None = None
    try:
        made = socket.socket(address.family, socket.SOCK_STREAM)
        # Allow the address even if a process that has just ended had connections there.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address.family is socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address.host, port, *address.scope))
    except OSError as error:
        if made is not None:
            made.close()
        raise OSError(error.errno, f"{error.strerror} ({with_port})") from error
    return made
