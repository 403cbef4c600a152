"""Binds each node to a principal (`node.principals`), so that a stolen key of one server cannot pose as another server.

Every caller at the listener between servers has a trusted certificate. With this setting, a server accepts messages of
a node only from the principal that the node is bound to. These messages are registrations, heartbeats and sessions of
brokers and coordinators, leaders' reports of their in-sync sets and disks, fetches of followers, and messages of the
controllers' quorum. A node that the setting does not name may send none of these. Pure.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from klamm.errors import ConfigError
from klamm.rpc.status import CallFailed, Status

_SETTING: Final = "node.principals"
_BINDING: Final = re.compile(r"(broker|controller|coordinator):([0-9]{1,9})=(User:.+)")


class NodeKind(enum.StrEnum):
    """A kind of server. Each kind has its own ids."""

    BROKER = "broker"
    CONTROLLER = "controller"
    COORDINATOR = "coordinator"


class Node(NamedTuple):
    """One server."""

    kind: NodeKind
    node_id: int


class NodePrincipals:
    """The bindings of nodes to principals in the setting."""

    def __init__(self, principals: Mapping[Node, str]) -> None:
        self._principals = principals

    @classmethod
    def parse(cls, bindings: Iterable[str]) -> NodePrincipals | None:
        """Parses bindings such as `broker:1=User:broker-1`. Returns None if there are none. Raises ConfigError."""
        principals: dict[Node, str] = {}
        for text in bindings:
            match = _BINDING.fullmatch(text)
            assert match is not None, "the setting's validator lets nothing else through"
            node = Node(NodeKind(match[1]), int(match[2]))
            if node in principals:
                raise ConfigError(f"{_SETTING}: {match[1]}:{match[2]} is listed twice, expected each server once")
            principals[node] = match[3]
        return cls(principals) if principals else None

    def check(self, nodes: Iterable[Node], principal: str) -> None:
        """Raises CallFailed(PERMISSION_DENIED) unless the principal may speak for each of the nodes."""
        for node in nodes:
            if self._principals.get(node) != principal:
                raise CallFailed(
                    Status.PERMISSION_DENIED,
                    f"{principal} is not allowed to act as {node.kind} {node.node_id} ({_SETTING})",
                )


def nodes_of(path: str) -> Callable[[Any], list[Node]] | None:
    """Returns the function that finds the nodes for which a request speaks, for a path such as
    `/klamm.v1.Controller/RegisterBroker`. Returns None if its requests speak for no node."""
    service, name = path.removeprefix("/klamm.v1.").split("/")
    return _SPEAK_FOR.get((service, name))


def _broker(request: Any) -> list[Node]:
    return [Node(NodeKind.BROKER, request.broker_id)]


def _coordinator(request: Any) -> list[Node]:
    return [Node(NodeKind.COORDINATOR, request.coordinator_id)]


def _session_holder(request: Any) -> list[Node]:
    return _broker(request) if request.WhichOneof("node") == "broker_id" else _coordinator(request)


def _who_allocates(request: Any) -> list[Node]:
    return _broker(request) if request.broker_epoch else _coordinator(request)


def _follower(request: Any) -> list[Node]:
    return [Node(NodeKind.BROKER, request.replica_id)]


def _senders(envelope: Any) -> list[Node]:
    return [Node(NodeKind.CONTROLLER, message.sender.node_id) for message in envelope.messages]


def _introduced(request: Any) -> list[Node]:
    return [Node(NodeKind.CONTROLLER, request.replica.node_id)]


_SPEAK_FOR: Final[Mapping[tuple[str, str], Callable[[Any], list[Node]]]] = {
    ("Controller", "RegisterBroker"): _broker,
    ("Controller", "BrokerHeartbeat"): _broker,
    ("Controller", "RegisterCoordinator"): _coordinator,
    ("Controller", "CoordinatorHeartbeat"): _coordinator,
    ("Controller", "HoldSession"): _session_holder,
    ("Controller", "AllocateProducerIds"): _who_allocates,
    ("Controller", "AlterPartition"): _broker,
    ("Controller", "ReportOfflineReplicas"): _broker,
    ("Controller", "ResignReplicas"): _broker,
    ("Controller", "ReportReplicaLogs"): _broker,
    ("Replication", "ReplicaFetch"): _follower,
    ("Raft", "Exchange"): _senders,
    ("Raft", "Introduce"): _introduced,
}
