"""The listeners of a server of Klamm whose configuration was written for Kafka.

Such a configuration sets `process.roles`. It names no listener for gRPC, because Kafka has none, and one file may have
the listeners of a broker and of a controller. Klamm runs them in processes of their own:

- A controller has the listeners that `controller.listener.names` names, as in Kafka. Servers speak gRPC there, secured
  as the file says: PLAINTEXT becomes GRPC, SASL_SSL becomes GRPC_SASL_SSL. The first one in plain text is called GRPC,
  as at the other servers, because a client gets the addresses of listeners with the same name as the one it uses.
- A broker has the others, and one for gRPC beside them. The first of the others says at which hosts it listens and is
  dialled, and the broker's default listener says at which port.
- A coordinator has such a listener for gRPC only. Kafka's brokers do the work of coordinators themselves.

A listener that Klamm adds is in plain text. So a broker or coordinator adds none if the file secures a listener of the
broker's. It asks for a gRPC listener instead, as it does without `process.roles`.

If the file has no listener for a server of this kind, the server takes all listeners if one of them is for gRPC. It has
its default listener otherwise. `inter.broker.listener.name` counts only if it names a listener for gRPC. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from klamm_server.net.listeners import name_in

_GRPC: Final = "GRPC"
_PLAIN: Final = ("PLAINTEXT", "KAFKA")
"""The map's names for listeners of Kafka clients in plain text."""
_OVER_GRPC: Final[Mapping[str, str]] = {
    "PLAINTEXT": "GRPC",
    "KAFKA": "GRPC",
    "SSL": "GRPC_SSL",
    "SASL_PLAINTEXT": "GRPC_SASL_PLAINTEXT",
    "SASL_SSL": "GRPC_SASL_SSL",
}
"""The protocol of a controller's listener, by the protocol in the file."""


class Role(enum.Enum):
    """What a server does in a cluster."""

    BROKER = "broker"
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"


class ListenerTexts(NamedTuple):
    """The values of the four settings for the addresses of a server's listeners."""

    listeners: Sequence[str]
    advertised: Sequence[str] | None
    protocol_map: Sequence[str]
    between_servers: str | None


def of_role(role: Role, given: ListenerTexts, controllers: Iterable[str], default: str) -> ListenerTexts:
    """Returns the listener settings of a server with this role, made from those that were `given` in a configuration
    for Kafka.

    `controllers` is `controller.listener.names`. `default` is the listener of a server that was given none."""
    names = {controller.strip().upper() for controller in controllers}
    own = _of_controller(given, names) if role is Role.CONTROLLER else _without(given, names)
    if not own.listeners and _has_grpc(given):
        own = given
    protocols = _protocols(own.protocol_map)
    if own.between_servers is not None and not _is_grpc(protocols, own.between_servers.upper()):
        own = own._replace(between_servers=None)
    if _has_grpc(own):
        return own
    if not own.listeners:
        return ListenerTexts((default,), None, (), None)
    if any(protocols.get(name_in(listener), name_in(listener)) not in _PLAIN for listener in own.listeners):
        return own
    return _with_grpc(own, default, is_alone=role is Role.COORDINATOR)


def _without(given: ListenerTexts, names: set[str]) -> ListenerTexts:
    """Returns the values of the listener settings without the listeners in `names`."""
    return given._replace(
        listeners=[listener for listener in given.listeners if name_in(listener) not in names],
        advertised=_where(given.advertised, lambda name: name not in names),
    )


def _of_controller(given: ListenerTexts, names: set[str]) -> ListenerTexts:
    """Returns the values of the listener settings for the listeners in `names`, where servers speak gRPC. As in Kafka,
    a controller's listener that the map lacks is in plain text, unless its name is that of a protocol."""
    map_of_file = _protocols(given.protocol_map)
    spoken = {name: map_of_file.get(name, name if _is_protocol(name) else "PLAINTEXT") for name in sorted(names)}
    over_grpc = {name: _OVER_GRPC.get(protocol, protocol) for name, protocol in spoken.items()}
    own = ListenerTexts(
        listeners=[listener for listener in given.listeners if name_in(listener) in names],
        advertised=_where(given.advertised, names.__contains__),
        protocol_map=[f"{name}:{protocol}" for name, protocol in over_grpc.items()],
        between_servers=given.between_servers,
    )
    plain = [name for name in map(name_in, own.listeners) if over_grpc[name] == _GRPC]
    return own if not plain or _GRPC in names else _called_grpc(own, plain[0])


def _called_grpc(own: ListenerTexts, name: str) -> ListenerTexts:
    """Returns the values of the listener settings with the name GRPC for the listener `name`. GRPC is also its
    protocol."""

    def renamed(listener: str) -> str:
        return f"{_GRPC}://{listener.partition('://')[2]}" if name_in(listener) == name else listener

    is_between_servers = own.between_servers is not None and own.between_servers.upper() == name
    return ListenerTexts(
        listeners=list(map(renamed, own.listeners)),
        advertised=None if own.advertised is None else list(map(renamed, own.advertised)),
        protocol_map=[entry for entry in own.protocol_map if entry.partition(":")[0] != name],
        between_servers=_GRPC if is_between_servers else own.between_servers,
    )


def _where(texts: Sequence[str] | None, is_requested: Callable[[str], bool]) -> Sequence[str] | None:
    """Returns the entries of listeners whose names satisfy `is_requested`, or None if there are none."""
    return [text for text in texts or () if is_requested(name_in(text))] or None


def _with_grpc(own: ListenerTexts, default: str, *, is_alone: bool) -> ListenerTexts:
    """Adds a listener for gRPC at the hosts of the first listener. With `is_alone` the server has no other listener."""
    port = default.rpartition(":")[2]
    first = own.listeners[0]
    dialled = next((address for address in own.advertised or () if name_in(address) == name_in(first)), None)
    listener = f"{_GRPC}://{_host(first)}:{port}"
    advertised = [] if dialled is None else [f"{_GRPC}://{_host(dialled)}:{port}"]
    if is_alone:
        return ListenerTexts((listener,), advertised or None, (), None)
    return own._replace(listeners=[*own.listeners, listener], advertised=[*(own.advertised or ()), *advertised] or None)


def _host(listener: str) -> str:
    return listener.partition("://")[2].rpartition(":")[0]


def _protocols(protocol_map: Iterable[str]) -> dict[str, str]:
    """Returns the protocol of each listener that the map names. `listener_set` refuses a map that it cannot read."""
    pairs = (text.upper().partition(":") for text in protocol_map)
    return {name: protocol for name, _, protocol in pairs}


def _is_grpc(protocols: Mapping[str, str], name: str) -> bool:
    return protocols.get(name, name).startswith(_GRPC)


def _has_grpc(texts: ListenerTexts) -> bool:
    protocols = _protocols(texts.protocol_map)
    return any(_is_grpc(protocols, name_in(listener)) for listener in texts.listeners)


def _is_protocol(name: str) -> bool:
    return name in _OVER_GRPC or name.startswith(_GRPC)
