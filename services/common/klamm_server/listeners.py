"""Listeners (KIP-103): where a server listens, what is spoken there, and what others dial.

A server may have several of each protocol: one for the network that it shares with the other servers, one for the
world. Each has a name, and whoever came in by a listener is told the addresses that the other servers have under the
same name; a server without one is none that this client could reach. Servers themselves use the first gRPC listener of
each other.
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
_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "[::]"})


class SecurityProtocol(enum.StrEnum):
    """What is spoken at a listener."""

    GRPC = "GRPC"
    KAFKA = "KAFKA"


DEFAULT_NAME: Final = "GRPC"
"""Of the gRPC listener where nobody says otherwise."""
_PROTOCOLS: Final = {
    "GRPC": SecurityProtocol.GRPC,
    "KAFKA": SecurityProtocol.KAFKA,
    "PLAINTEXT": SecurityProtocol.KAFKA,
}
"""By their names in the map, and by the names of listeners that the map need not mention. PLAINTEXT is Kafka's name."""

CAME_BY: ContextVar[str] = ContextVar("listener", default=DEFAULT_NAME)
"""The name of the gRPC listener that the call under way came in by."""


class Listener(NamedTuple):
    """`GRPC://0.0.0.0:9094` is ("GRPC", SecurityProtocol.GRPC, "0.0.0.0", 9094); what others dial looks the same."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class ListenerSet:
    """All of a server's: where it listens and, in the same order, what others dial."""

    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]

    def of(self, protocol: SecurityProtocol) -> tuple[Listener, ...]:
        """Where it listens for that protocol, in the order of `listeners`."""
        return tuple(one for one in self.bound if one.protocol is protocol)

    def dialled(self, ports: Mapping[str, int]) -> tuple[Listener, ...]:
        """What others dial to reach the listeners that `ports` has, by name, the port each was bound to: it stands for
        a configured one of 0."""
        return tuple(one._replace(port=one.port or ports[one.name]) for one in self.advertised if one.name in ports)


def listener_set(
    listeners: Sequence[str], advertised: Sequence[str] | None, protocol_map: Sequence[str]
) -> ListenerSet:
    """Of the three settings' texts. Raises ConfigError for what cannot be meant."""
    if not listeners:
        raise ConfigError("listeners: the list is empty, expected at least one NAME://host:port")
    protocols = _protocols(protocol_map)
    bound = tuple(_parse(_NAMES, text, protocols) for text in listeners)
    _check_names(_NAMES, bound)
    _check_ports(bound)
    if all(one.protocol is not SecurityProtocol.GRPC for one in bound):
        raise ConfigError(f"listeners: {listeners[0]!r} is not for gRPC, expected a GRPC://host:port too")
    named = [_parse(_ADVERTISED, text, protocols) for text in advertised or ()]
    _check_names(_ADVERTISED, named)
    names = [one.name for one in bound]
    for one in named:
        if one.name not in names:
            raise ConfigError(f"{_ADVERTISED}: {one.name} is not among the listeners, which are {', '.join(names)}")
        if one.host in _EVERY_INTERFACE:
            raise ConfigError(f"{_ADVERTISED}: {one.host!r} is not an address that others can dial")
    by_name = {one.name: one for one in named}
    return ListenerSet(bound, tuple(by_name.get(one.name) or _dialled_as_bound(one, advertised) for one in bound))


def find(listeners: Iterable[Listener], name: str, protocol: SecurityProtocol) -> Listener | None:
    """What a client dials who came in by a listener of that name; None: nothing."""
    return next((one for one in listeners if one.name == name and one.protocol is protocol), None)


def first(listeners: Iterable[Listener], protocol: SecurityProtocol) -> Listener | None:
    """The one that counts where a server can name only one."""
    return next((one for one in listeners if one.protocol is protocol), None)


def seen_by_caller(listeners: Iterable[Listener]) -> Listener | None:
    """What the client dials whose call is under way here; None: nothing."""
    return find(listeners, CAME_BY.get(), SecurityProtocol.GRPC)


def plain_listeners(host: str, port: int, kafka: pb.Endpoint | None = None) -> tuple[Listener, ...]:
    """Of a server that tells its addresses without names."""
    grpc = Listener(DEFAULT_NAME, SecurityProtocol.GRPC, host, port)
    if kafka is None or not kafka.port:
        return (grpc,)
    return grpc, Listener(SecurityProtocol.KAFKA.value, SecurityProtocol.KAFKA, kafka.host, kafka.port)


def endpoint(listener: Listener | None) -> pb.Endpoint | None:
    """On the wire."""
    return None if listener is None else pb.Endpoint(host=listener.host, port=listener.port)


def encode(listeners: Iterable[Listener]) -> Iterator[pb.AdvertisedListener]:
    """On the wire."""
    for one in listeners:
        yield pb.AdvertisedListener(name=one.name, protocol=one.protocol.value, endpoint=endpoint(one))


def decode(listeners: Iterable[pb.AdvertisedListener]) -> tuple[Listener, ...]:
    """Off the wire, but for those of protocols that this version does not know."""
    return tuple(
        Listener(one.name, _PROTOCOLS[one.protocol], one.endpoint.host, one.endpoint.port)
        for one in listeners
        if one.protocol in _PROTOCOLS
    )


_LISTENER = re.compile(r"([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.]+\]|[^:/\[\]]*):([0-9]{1,5})")


def _parse(setting: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> Listener:
    """`NAME://host:port`; an empty host is every interface."""
    match = _LISTENER.fullmatch(text)
    if match is None or int(match[3]) > PORT_MAX:
        raise ConfigError(f"{setting}: {text!r} is not valid, expected NAME://host:port")
    name = match[1].upper()
    if name not in protocols:
        raise ConfigError(
            f"{setting}: nobody says what is spoken at {name}, expected {name}:GRPC or {name}:KAFKA in {_MAP}"
        )
    return Listener(name, protocols[name], match[2], int(match[3]))


def _protocols(protocol_map: Sequence[str]) -> dict[str, SecurityProtocol]:
    """By listener's name."""
    chosen: dict[str, SecurityProtocol] = {}
    for text in protocol_map:
        name, _, protocol = text.upper().partition(":")
        if not name or protocol not in _PROTOCOLS:
            raise ConfigError(f"{_MAP}: {text!r} is not valid, expected NAME:PROTOCOL with {', '.join(_PROTOCOLS)}")
        if name in chosen:
            raise ConfigError(f"{_MAP}: {name} is there twice")
        chosen[name] = _PROTOCOLS[protocol]
    return {**_PROTOCOLS, **chosen}


def _check_names(setting: str, listeners: Sequence[Listener]) -> None:
    names = [one.name for one in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"{setting}: {name} is there twice, expected names of their own, with what is spoken there in {_MAP}"
            )


def _check_ports(listeners: Sequence[Listener]) -> None:
    """Port 0 is a free one, and one address of each family may share a port, as in Kafka."""
    seen: dict[int, Listener] = {}
    for one in listeners:
        other = seen.setdefault(one.port, one)
        if one.port and other is not one and {_family(one.host), _family(other.host)} != {4, 6}:
            raise ConfigError(f"listeners: {other.name} and {one.name} have the same port {one.port}")


def _family(host: str) -> int | None:
    """4 or 6; None of a name."""
    try:
        return ipaddress.ip_address(host.strip("[]")).version
    except ValueError:
        return None


def _dialled_as_bound(listener: Listener, advertised: Sequence[str] | None) -> Listener:
    if listener.host in _EVERY_INTERFACE:
        lacks = f"has no {listener.name}" if advertised else "is not set"
        raise ConfigError(
            f"{_ADVERTISED} {lacks}: the server listens on every interface, so name the"
            f" address that others dial, e.g. {listener.name}://broker1.example.com:{listener.port}"
        )
    return listener
