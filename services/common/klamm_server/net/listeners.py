"""Listeners (KIP-103): where a server listens, the protocol there, and the addresses that others dial.

A server may have several listeners of each protocol: one for the network that it shares with the other servers, one for
the world. Each has a name. A client of one listener gets the addresses that the other servers have under the same
name, and cannot reach a server without a listener of that name. Between servers, one gRPC listener is used, which comes
first in the list: `inter.broker.listener.name`, or else the first configured gRPC listener. A server dials the other
servers' listener that has the same name as its own. So servers may change to another listener one after the other.

| in `listener.security.protocol.map` | API   | encrypted | who one is          |
|-------------------------------------|-------|-----------|---------------------|
| PLAINTEXT, or KAFKA                 | Kafka | no        | nobody in particular |
| SSL                                 | Kafka | yes       | by certificate      |
| SASL_PLAINTEXT, SASL_SSL            | Kafka | no, yes   | by SASL             |
| GRPC                                | gRPC  | no        | nobody in particular |
| GRPC_SSL                            | gRPC  | yes       | by certificate      |
| GRPC_SASL_PLAINTEXT, GRPC_SASL_SSL  | gRPC  | no, yes   | by SASL             |
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, NamedTuple

from klamm.errors import ConfigError
from klamm.wire.v1 import common_pb2 as pb

PORT_MAX: Final = 65_535

_NAMES: Final = "listeners"
_ADVERTISED: Final = "advertised.listeners"
_MAP: Final = "listener.security.protocol.map"
_BETWEEN_SERVERS: Final = "inter.broker.listener.name"
_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "[::]"})


class SecurityProtocol(enum.StrEnum):
    """The protocol of a listener: gRPC or Kafka's."""

    GRPC = "GRPC"
    KAFKA = "KAFKA"


class Security(NamedTuple):
    """How a listener is secured."""

    is_encrypted: bool = False
    wants_sasl: bool = False


PLAIN: Final = Security()
ENCRYPTED: Final = Security(is_encrypted=True)

DEFAULT_NAME: Final = "GRPC"
"""The name of the gRPC listener if the configuration has no other."""
_PROTOCOLS: Final = {
    "GRPC": (SecurityProtocol.GRPC, PLAIN),
    "KAFKA": (SecurityProtocol.KAFKA, PLAIN),
    "PLAINTEXT": (SecurityProtocol.KAFKA, PLAIN),
    "SSL": (SecurityProtocol.KAFKA, ENCRYPTED),
    "SASL_PLAINTEXT": (SecurityProtocol.KAFKA, Security(wants_sasl=True)),
    "SASL_SSL": (SecurityProtocol.KAFKA, Security(is_encrypted=True, wants_sasl=True)),
    "GRPC_SSL": (SecurityProtocol.GRPC, ENCRYPTED),
    "GRPC_SASL_PLAINTEXT": (SecurityProtocol.GRPC, Security(wants_sasl=True)),
    "GRPC_SASL_SSL": (SecurityProtocol.GRPC, Security(is_encrypted=True, wants_sasl=True)),
}
"""The meaning of each name in the map. A listener with such a name need not be in the map. PLAINTEXT is Kafka's
name.
"""
_ON_THE_WIRE: Final = {meant: name for name, meant in reversed(_PROTOCOLS.items())}
"""The name of each meaning in messages. A listener in plain text is KAFKA there, because every version knows this
name.
"""

CAME_BY: ContextVar[str] = ContextVar("listener", default=DEFAULT_NAME)
"""The name of the gRPC listener that received the current call."""


class Listener(NamedTuple):
    """One listener: `GRPC://0.0.0.0:9094` is ("GRPC", SecurityProtocol.GRPC, "0.0.0.0", 9094). An advertised listener,
    which others dial, has the same form."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    security: Security = PLAIN

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def protocol_name(self) -> str:
        """The protocol's name as in listener.security.protocol.map; KAFKA for PLAINTEXT."""
        return _ON_THE_WIRE[self.protocol, self.security]

    @property
    def is_local(self) -> bool:
        """True if only this machine can reach the listener."""
        host = self.host.strip("[]")
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host.lower() == "localhost"


@dataclass(frozen=True, slots=True)
class ListenerSet:
    """All listeners of a server, and in the same order the addresses that others dial. Servers use each other's first
    gRPC listener."""

    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]

    def of(self, protocol: SecurityProtocol) -> tuple[Listener, ...]:
        """Returns the listeners for that protocol."""
        return tuple(listener for listener in self.bound if listener.protocol is protocol)

    @property
    def between_servers(self) -> Listener:
        """Returns the listener that other servers use."""
        return self.of(SecurityProtocol.GRPC)[0]

    @property
    def secured(self) -> tuple[Listener, ...]:
        """The listeners with TLS, and those where clients log in."""
        return tuple(listener for listener in self.bound if listener.security != PLAIN)

    def dialled(self, ports: Mapping[str, int]) -> tuple[Listener, ...]:
        """Returns the addresses that others dial to reach the listeners in `ports`. It has the bound port of each
        listener by name, which replaces a configured port 0."""
        return tuple(
            listener._replace(port=listener.port or ports[listener.name])
            for listener in self.advertised
            if listener.name in ports
        )


def listener_set(
    listeners: Sequence[str],
    advertised: Sequence[str] | None,
    protocol_map: Sequence[str],
    between_servers: str | None = None,
) -> ListenerSet:
    """Returns the listeners from the texts of four settings. `between_servers` is `inter.broker.listener.name`. Raises
    ConfigError for invalid texts."""
    if not listeners:
        raise ConfigError("listeners: the list is empty, expected at least one NAME://host:port")
    protocols = _protocols(protocol_map)
    bound = tuple(_parse(_NAMES, text, protocols) for text in listeners)
    _check_names(_NAMES, bound)
    _check_ports(bound)
    if all(listener.protocol is not SecurityProtocol.GRPC for listener in bound):
        raise ConfigError(f"listeners: no gRPC listener, expected a GRPC://host:port besides {listeners[0]!r}")
    if between_servers is not None:
        bound = _with_first(bound, between_servers.upper())
    named = [_parse(_ADVERTISED, text, protocols) for text in advertised or ()]
    _check_names(_ADVERTISED, named)
    names = [listener.name for listener in bound]
    for listener in named:
        if listener.name not in names:
            raise ConfigError(
                f"{_ADVERTISED}: {listener.name} is not a listener of this server, expected one of {', '.join(names)}"
            )
        if listener.host in _EVERY_INTERFACE:
            raise ConfigError(f"{_ADVERTISED}: {listener.host!r} is not an address that other hosts can connect to")
    by_name = {listener.name: listener for listener in named}
    return ListenerSet(
        bound, tuple(by_name.get(listener.name) or _dialled_as_bound(listener, advertised) for listener in bound)
    )


def find(listeners: Iterable[Listener], name: str, protocol: SecurityProtocol) -> Listener | None:
    """Returns the listener for a client that uses a listener with that name, or None if there is none."""
    return next((listener for listener in listeners if listener.name == name and listener.protocol is protocol), None)


def between_servers(listeners: Iterable[Listener], own: Listener) -> Listener | None:
    """Returns the listener of another server that a server with the listener `own` dials. It is the one with the same
    name, as in Kafka, or otherwise the first with the same protocol and security. Returns None if there is neither."""
    alike = [
        listener for listener in listeners if listener.protocol is own.protocol and listener.security == own.security
    ]
    return next((listener for listener in alike if listener.name == own.name), next(iter(alike), None))


def first(listeners: Iterable[Listener], protocol: SecurityProtocol) -> Listener | None:
    """Returns the listener that a server uses when it can name only one address."""
    return next((listener for listener in listeners if listener.protocol is protocol), None)


def own_listener(listeners: Iterable[Listener]) -> Listener | None:
    """Returns the listener for the client of the current call, or None if there is none."""
    return find(listeners, CAME_BY.get(), SecurityProtocol.GRPC)


def plain_listeners(host: str, port: int, kafka: pb.Endpoint | None = None) -> tuple[Listener, ...]:
    """Returns the listeners of a server that reports its addresses without names."""
    grpc = Listener(DEFAULT_NAME, SecurityProtocol.GRPC, host, port)
    if kafka is None or not kafka.port:
        return (grpc,)
    return grpc, Listener(SecurityProtocol.KAFKA.value, SecurityProtocol.KAFKA, kafka.host, kafka.port)


def endpoint(listener: Listener | None) -> pb.Endpoint | None:
    """Returns the listener's endpoint as a message, or None without a listener."""
    return None if listener is None else pb.Endpoint(host=listener.host, port=listener.port)


def encode(listeners: Iterable[Listener]) -> Iterator[pb.AdvertisedListener]:
    """Yields the listeners as messages."""
    for listener in listeners:
        yield pb.AdvertisedListener(name=listener.name, protocol=listener.protocol_name, endpoint=endpoint(listener))


def decode(listeners: Iterable[pb.AdvertisedListener]) -> tuple[Listener, ...]:
    """Returns the listeners of messages. Skips protocols that this version does not know."""
    return tuple(
        _listener(listener.name, _PROTOCOLS[listener.protocol], listener.endpoint.host, listener.endpoint.port)
        for listener in listeners
        if listener.protocol in _PROTOCOLS
    )


def name_in(text: str) -> str:
    """Returns the listener's name in `NAME://host:port`, even if the text is invalid."""
    return text.partition("://")[0].strip().upper()


_LISTENER = re.compile(r"([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.]+\]|[^:/\[\]]*):([0-9]{1,5})")


_Meant = tuple[SecurityProtocol, Security]
"""The meaning of a name in the map."""


def _listener(name: str, meant: _Meant, host: str, port: int) -> Listener:
    protocol, security = meant
    return Listener(name, protocol, host, port, security)


def _parse(setting: str, text: str, protocols: Mapping[str, _Meant]) -> Listener:
    """Parses `NAME://host:port`. An empty host means every interface."""
    match = _LISTENER.fullmatch(text)
    if match is None or int(match[3]) > PORT_MAX:
        raise ConfigError(f"{setting}: {text!r} is not valid, expected NAME://host:port")
    name = match[1].upper()
    if name not in protocols:
        raise ConfigError(
            f"{setting}: the listener {name} has no protocol, expected {name}:GRPC or {name}:KAFKA in {_MAP}"
        )
    return _listener(name, protocols[name], match[2], int(match[3]))


def _with_first(bound: tuple[Listener, ...], name: str) -> tuple[Listener, ...]:
    """The listeners, with the gRPC listener `name` before the others."""
    found = find(bound, name, SecurityProtocol.GRPC)
    if found is None:
        names = ", ".join(listener.name for listener in bound if listener.protocol is SecurityProtocol.GRPC)
        raise ConfigError(f"{_BETWEEN_SERVERS}: {name} is not a gRPC listener of this server, expected one of {names}")
    return found, *(listener for listener in bound if listener is not found)


def _protocols(protocol_map: Sequence[str]) -> dict[str, _Meant]:
    """Returns the meaning of each listener in the map, by the listener's name."""
    chosen: dict[str, _Meant] = {}
    for text in protocol_map:
        name, _, protocol = text.upper().partition(":")
        if not name or protocol not in _PROTOCOLS:
            raise ConfigError(f"{_MAP}: {text!r} is not valid, expected NAME:PROTOCOL with {', '.join(_PROTOCOLS)}")
        if name in chosen:
            raise ConfigError(f"{_MAP}: {name} is listed twice, expected each name once")
        chosen[name] = _PROTOCOLS[protocol]
    return {**_PROTOCOLS, **chosen}


def _check_names(setting: str, listeners: Sequence[Listener]) -> None:
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"{setting}: {name} is listed twice, expected unique names, with their protocols in {_MAP}"
            )


def _check_ports(listeners: Sequence[Listener]) -> None:
    """Raises ConfigError for duplicate ports. Port 0 is exempt, and one address of each family may share a port, as in
    Kafka."""
    seen: dict[int, Listener] = {}
    for listener in listeners:
        other = seen.setdefault(listener.port, listener)
        if listener.port and other is not listener and {_family(listener.host), _family(other.host)} != {4, 6}:
            raise ConfigError(
                f"listeners: {other.name} and {listener.name} have the same port {listener.port}, expected different"
                " ports"
            )


def _family(host: str) -> int | None:
    """Returns 4 or 6 for an address, or None for a name."""
    try:
        return ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return None


def _dialled_as_bound(listener: Listener, advertised: Sequence[str] | None) -> Listener:
    if listener.host in _EVERY_INTERFACE:
        lacks = f"has no {listener.name}" if advertised else "is not set"
        raise ConfigError(
            f"{_ADVERTISED} {lacks}: the server listens on every interface, so name the"
            f" address that other hosts connect to, e.g. {listener.name}://broker1.example.com:{listener.port}"
        )
    return listener
