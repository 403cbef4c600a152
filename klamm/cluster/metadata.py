"""A client's metadata of the cluster: servers, topics, and the leader of each partition.

A view is immutable; `merged` and `with_leader` return the next view. Two rules keep old answers from replacing newer
ones. A partition of the same topic id never gets an older leader epoch than the known one (KIP-320). A leader hint is
applied only with a newer epoch (KIP-951). If a requested topic was not found, the view drops it, and `topic_errors` has
the reason."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.model import NO_LEADER_EPOCH, TopicPartition
from klamm.rpc.kafka_listener import KafkaListener
from klamm.wire.v1 import broker_pb2, common_pb2

NO_LEADER = -1
_DENIALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
"""The errors that keep a topic from a client until its rights or the name change, as in Kafka's clients."""

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def server_address(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A server and its address."""

    node_id: int
    host: str
    port: int
    rack: str = ""
    kafka_address: str = ""
    """The `host:port` at which a broker speaks Kafka's protocol to the clients of `address`, or empty."""

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 address in brackets."""
        return server_address(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """The newest metadata of one partition."""

    partition: int
    leader: int
    """The leader's broker id, or NO_LEADER."""
    leader_epoch: int
    replicas: tuple[int, ...]
    """The broker ids of the replicas, the preferred leader first."""
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic. `partitions` is indexed by partition number."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionView, ...]
    internal: bool = False


def _frozen(mapping: Mapping[KeyT, ValueT]) -> Mapping[KeyT, ValueT]:
    return MappingProxyType(dict(mapping))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as the latest metadata answers describe it."""

    cluster_id: str = ""
    """The cluster's id, or empty before the first answer."""
    brokers: Mapping[int, Node] = field(default_factory=lambda: _frozen({}))
    controllers: tuple[Node, ...] = ()
    """The servers of the Admin API, the active controller first."""
    coordinators: Mapping[int, Node] = field(default_factory=lambda: _frozen({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: _frozen({}))
    topic_errors: Mapping[str, ErrorCode] = field(default_factory=lambda: _frozen({}))
    """The requested topics that could not be described, with the error."""

    def kafka_listener(self, node_id: int) -> KafkaListener | None:
        """Returns the Kafka listener of the broker for this client, or None if it has none."""
        address = self.brokers[node_id].kafka_address
        return KafkaListener(address, self.cluster_id, node_id) if address else None

    def topic(self, name: str) -> TopicView | None:
        """Returns the topic, or None if it is not known."""
        return self.topics.get(name)

    def partition(self, tp: TopicPartition) -> PartitionView | None:
        """Returns the partition, or None if it is not known."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader_of(self, tp: TopicPartition) -> Node | None:
        """Returns the node of the partition's leader, or None if there is no leader or its node is not known."""
        partition = self.partition(tp)
        return None if partition is None else self.brokers.get(partition.leader)

    def denial_of(self, topics: Iterable[str]) -> BrokerError | None:
        """Returns the error of the first of these topics that is denied to this client, or None if none is denied. A
        denial does not end by itself, unlike a missing topic that may be created later."""
        denied = [name for name in sorted(topics) if self.topic_errors.get(name) in _DENIALS]
        return self.topic_errors[denied[0]].exception(f"topic {denied[0]!r}") if denied else None

    def leader_epoch_of(self, tp: TopicPartition) -> int:
        """Returns the epoch of the partition's leader, or NO_LEADER_EPOCH."""
        partition = self.partition(tp)
        return NO_LEADER_EPOCH if partition is None else partition.leader_epoch

    def partition_count(self, topic: str) -> int | None:
        """Returns the number of partitions, or None if the topic is not known."""
        view = self.topics.get(topic)
        return None if view is None else len(view.partitions)

    def partitions_of(self, topic: str) -> tuple[PartitionView, ...]:
        """Returns the topic's partitions in the order of their numbers, or an empty tuple if the topic is not known."""
        view = self.topics.get(topic)
        return () if view is None else view.partitions

    def available_partitions(self, topic: str) -> tuple[PartitionView, ...]:
        """Returns the partitions that have a known live leader."""
        return tuple(partition for partition in self.partitions_of(topic) if partition.leader in self.brokers)

    def merged(self, response: broker_pb2.MetadataResponse, asked: Iterable[str] | None) -> ClusterView:
        """Returns the view after an answer about the topics `asked`, or about all topics if it is None."""
        described = {topic.name: topic for topic in response.topics}
        wanted = None if asked is None else set(asked)
        kept = {} if wanted is None else _without(self.topics, wanted)
        kept_errors = {} if wanted is None else _without(self.topic_errors, wanted)
        found = {
            name: _topic_view(topic, self.topics.get(name)) for name, topic in described.items() if not topic.error_code
        }
        errors = {name: ErrorCode.of(topic.error_code) for name, topic in described.items() if topic.error_code}
        return ClusterView(
            cluster_id=response.cluster_id,
            brokers=_frozen({broker.node_id: node_of(broker) for broker in response.brokers}),
            controllers=tuple(node_of(controller) for controller in response.controllers),
            coordinators=_frozen({coordinator.node_id: node_of(coordinator) for coordinator in response.coordinators}),
            topics=_frozen({**kept, **found}),
            topic_errors=_frozen({**kept_errors, **errors}),
        )

    def with_topics(self, topics: Iterable[TopicView]) -> ClusterView:
        """Returns the view with topics that another response than Metadata described."""
        found = {topic.name: _with_newest_leaders(topic, self.topics.get(topic.name)) for topic in topics}
        return replace(self, topics=_frozen({**self.topics, **found}))

    def with_leader(
        self, tp: TopicPartition, leader: int, leader_epoch: int, nodes: Iterable[Node] = ()
    ) -> ClusterView:
        """Returns a view with the hinted leader. Returns this view if the hint is not newer, or if its broker is
        unknown. The answer with the hint may describe the broker in `nodes`."""
        known = self.partition(tp)
        if known is None or leader_epoch <= known.leader_epoch:
            return self
        node = next((broker for broker in nodes if broker.node_id == leader), self.brokers.get(leader))
        if node is None:
            return self
        topic = self.topics[tp.topic]
        partitions = list(topic.partitions)
        partitions[tp.partition] = replace(known, leader=leader, leader_epoch=leader_epoch)
        changed = replace(topic, partitions=tuple(partitions))
        return replace(
            self,
            brokers=_frozen({**self.brokers, leader: node}),
            topics=_frozen({**self.topics, tp.topic: changed}),
        )


def node_of(message: common_pb2.Node) -> Node:
    """Returns the Node of a message."""
    endpoint, kafka = message.endpoint, message.kafka_endpoint
    return Node(
        node_id=message.node_id,
        host=endpoint.host,
        port=endpoint.port,
        rack=message.rack,
        kafka_address=server_address(kafka.host, kafka.port) if kafka.port else "",
    )


def _without(mapping: Mapping[str, ValueT], names: set[str]) -> dict[str, ValueT]:
    return {name: value for name, value in mapping.items() if name not in names}


def _topic_view(message: broker_pb2.TopicMetadata, known: TopicView | None) -> TopicView:
    fresh = TopicView(
        name=message.name,
        topic_id=uuid.UUID(bytes=message.topic_id),
        internal=message.internal,
        partitions=tuple(map(_partition_view, sorted(message.partitions, key=lambda partition: partition.partition))),
    )
    return _with_newest_leaders(fresh, known)


def _with_newest_leaders(fresh: TopicView, known: TopicView | None) -> TopicView:
    """Returns `fresh`, but keeps the partitions of `known` that have a newer leader epoch."""
    # A topic that was deleted and created again starts at epoch 0. The old topic's epochs do not apply to it.
    if known is None or known.topic_id != fresh.topic_id:
        return fresh
    past = known.partitions
    newest = (
        past[number] if number < len(past) and past[number].leader_epoch > partition.leader_epoch else partition
        for number, partition in enumerate(fresh.partitions)
    )
    return replace(fresh, partitions=tuple(newest))


def _partition_view(message: broker_pb2.PartitionMetadata) -> PartitionView:
    return PartitionView(
        partition=message.partition,
        leader=message.leader,
        leader_epoch=message.leader_epoch,
        replicas=tuple(message.replicas),
        isr=tuple(message.isr),
        offline_replicas=tuple(message.offline_replicas),
    )
