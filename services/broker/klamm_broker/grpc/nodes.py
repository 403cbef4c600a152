"""Servers with the addresses that a gRPC caller can dial, by the caller's listener."""

from __future__ import annotations

from collections.abc import Iterable

from klamm.wire.v1.common_pb2 import Node
from klamm_broker.handlers.leader_hints import HINTED, AnsweredPartition
from klamm_broker.replica.broker_directory import BrokerDirectory
from klamm_server.metadata.entities import BrokerImage, CoordinatorImage
from klamm_server.net.listeners import endpoint, seen_by_caller


def leader_nodes(brokers: BrokerDirectory, answers: Iterable[AnsweredPartition]) -> list[Node]:
    """Returns the leaders that `answers` name, each once, if they are registered and the caller can dial them."""
    leaders = dict.fromkeys(answer.current_leader for answer in answers if answer.error_code in HINTED)
    return reachable(broker_node(brokers.images[leader]) for leader in leaders if leader in brokers.images)


def reachable(nodes: Iterable[Node]) -> list[Node]:
    """Returns the nodes that the caller can dial."""
    return [node for node in nodes if node.HasField("endpoint")]


def broker_node(broker: BrokerImage) -> Node:
    """Returns a broker as the caller sees it, without an endpoint if the caller cannot dial it."""
    return Node(
        node_id=broker.broker_id,
        endpoint=endpoint(seen_by_caller(broker.listeners)),
        rack=broker.rack,
        fenced=broker.fenced,
    )


def coordinator_node(coordinator: CoordinatorImage) -> Node:
    """Returns a coordinator as the caller sees it, without an endpoint if the caller cannot dial it."""
    return Node(
        node_id=coordinator.coordinator_id,
        endpoint=endpoint(seen_by_caller(coordinator.listeners)),
        fenced=coordinator.fenced,
    )
