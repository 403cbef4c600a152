"""Servers with the addresses that a caller can dial, by the caller's gRPC listener."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.wire.v1.common_pb2 import Node
from klamm_broker.handlers.leader_hints import HINTED, AnsweredPartition
from klamm_broker.replica.broker_directory import BrokerDirectory
from klamm_server.metadata.entities import BrokerImage, CoordinatorImage
from klamm_server.net.listeners import CAME_BY, SecurityProtocol, endpoint, find, own_listener


class BrokerNodes:
    """The brokers as callers see them. `kafka_beside` has the name of the Kafka listener beside each gRPC listener that
    has one (`klamm_server.net.listener_pairs`)."""

    def __init__(self, brokers: BrokerDirectory, kafka_beside: Mapping[str, str]) -> None:
        self._brokers = brokers
        self._kafka_beside = kafka_beside

    def leaders(self, answers: Iterable[AnsweredPartition], came_by: str | None = None) -> list[Node]:
        """Returns the leaders that `answers` name, each once, if they are registered and the caller can dial them.
        `came_by` is the caller's gRPC listener, by default that of the current call."""
        leaders = dict.fromkeys(answer.current_leader for answer in answers if answer.error_code in HINTED)
        images = self._brokers.images
        return reachable(self.node(images[leader], came_by) for leader in leaders if leader in images)

    def node(self, broker: BrokerImage, came_by: str | None = None) -> Node:
        """Returns a broker as the caller sees it, without an endpoint if the caller cannot dial it. It has a Kafka
        endpoint only at the same host."""
        name = CAME_BY.get() if came_by is None else came_by
        listener = find(broker.listeners, name, SecurityProtocol.GRPC)
        kafka = find(broker.listeners, self._kafka_beside.get(name, ""), SecurityProtocol.KAFKA)
        if kafka is not None and (listener is None or listener.host != kafka.host):
            kafka = None
        return Node(
            node_id=broker.broker_id,
            endpoint=endpoint(listener),
            kafka_endpoint=endpoint(kafka),
            rack=broker.rack,
            fenced=broker.fenced,
        )


def reachable(nodes: Iterable[Node]) -> list[Node]:
    """Returns the nodes that the caller can dial."""
    return [node for node in nodes if node.HasField("endpoint")]


def coordinator_node(coordinator: CoordinatorImage) -> Node:
    """Returns a coordinator as the caller sees it, without an endpoint if the caller cannot dial it."""
    return Node(
        node_id=coordinator.coordinator_id,
        endpoint=endpoint(own_listener(coordinator.listeners)),
        fenced=coordinator.fenced,
    )
