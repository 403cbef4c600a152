"""Tells a gRPC client where the servers are that answer a call, if this server does not."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, SecurityProtocol, find
from klamm_server.security.operations import RPCS, is_between_servers

ADDRESSES_MAX: Final = 5
"""The most addresses in one text."""


class Role(enum.Enum):
    """A kind of server."""

    CONTROLLER = "controller"
    BROKER = "broker"
    COORDINATOR = "coordinator"


_ROLES: Final = {
    "Admin": Role.CONTROLLER,
    "Controller": Role.CONTROLLER,
    "Raft": Role.CONTROLLER,
    "Broker": Role.BROKER,
    "Replication": Role.BROKER,
    "Coordinator": Role.COORDINATOR,
}
"""The kind of server that has a service. Every server has the other services."""
_PACKAGE: Final = "/klamm.v1."
_PATHS: Final = (f"{_PACKAGE}{service}/{name}" for service, calls in RPCS.items() for name in calls)
_BETWEEN_SERVERS: Final = frozenset(path for path in _PATHS if is_between_servers(path))


@dataclass(frozen=True, slots=True)
class KnownServers:
    """The servers of the cluster that one server knows."""

    image: Callable[[], MetadataImage]
    controllers: Callable[[], Sequence[Sequence[Listener]]] = tuple
    """Returns the listeners of each controller that clients dial, the active controller's first. A controller does not
    need them."""

    def listeners(self, role: Role) -> Iterable[Sequence[Listener]]:
        """Returns the listeners of each server of that kind that is alive."""
        if role is Role.CONTROLLER:
            return self.controllers()
        image = self.image()
        servers = image.live_brokers() if role is Role.BROKER else image.live_coordinators()
        return (server.listeners for server in servers)


class OtherServices:
    """The services that this process does not have. `servers_listener` is the only listener with the calls between
    servers, or None if all listeners have them."""

    def __init__(self, servers_listener: str | None) -> None:
        self._servers_listener = servers_listener
        self._known: dict[Role, KnownServers] = {}
        """The kinds of the servers in this process."""

    def add(self, role: Role, known: KnownServers) -> None:
        """Notes that this process has a server of that kind."""
        self._known[role] = known

    def refusal(self, path: str, listener: str) -> str | None:
        """Returns the text for a client that called `path` at `listener`, where nothing answers this call. Returns None
        if no server has this service, or if the service is here but has no such call."""
        service = path.removeprefix(_PACKAGE).partition("/")[0]
        role = _ROLES.get(service)
        if role is None or not self._known:
            return None
        if path in _BETWEEN_SERVERS and self._servers_listener not in (None, listener):
            return f"only servers call {path}, at the listener {self._servers_listener}"
        if role in self._known:
            return None
        own, known = next(iter(self._known.items()))
        return f"this {own.value} does not have the service klamm.v1.{service}: call a {role.value}" + _places(
            known.listeners(role), listener, role
        )


def _places(servers: Iterable[Sequence[Listener]], listener: str, role: Role) -> str:
    """Returns the end of a text: the addresses that a client of `listener` dials."""
    dialled = (find(server, listener, SecurityProtocol.GRPC) for server in servers)
    addresses = (f"{endpoint.host}:{endpoint.port}" for endpoint in dialled if endpoint is not None)
    shown = list(islice(addresses, ADDRESSES_MAX))
    if not shown:
        return f" (no address of a {role.value} is known for the listener {listener})"
    first = ", the active controller first" if role is Role.CONTROLLER and len(shown) > 1 else ""
    return f" ({', '.join(shown)}{first})"
