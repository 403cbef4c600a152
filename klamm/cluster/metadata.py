"""What a client knows of the cluster: servers, topics, and the leader of each partition.

A view is immutable; `merged` and `with_leader` return the next one. Two rules keep it from going back in
time: a partition of the same topic id never takes an older leader epoch than the one known (KIP-320), and a
leader hint is taken only with a newer one (KIP-951). A topic that was asked for and not found leaves the view;
why is in `topic_errors`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from klamm.errors import BrokerError, ErrorCode
from klamm.model import NO_LEADER_EPOCH, TopicPartition
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
    """A server and where to dial it."""

    node_id: int
    host: str
    port: int
    rack: str = ""

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 address in brackets."""
        return server_address(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition, as the newest metadata describe it."""

    partition: int
    leader: int
    """Broker id, or NO_LEADER."""
    leader_epoch: int
    replicas: tuple[int, ...]
    """The preferred leader first."""
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic; `partitions` is indexed by partition number."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionView, ...]
    internal: bool = False


def _frozen(mapping: Mapping[KeyT, ValueT]) -> Mapping[KeyT, ValueT]:
    return MappingProxyType(dict(mapping))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as of the last metadata answers."""

    cluster_id: str = ""
    """Empty until the first answer."""
    brokers: Mapping[int, Node] = field(default_factory=lambda: _frozen({}))
    controllers: tuple[Node, ...] = ()
    """Where the Admin API is served, the active controller first."""
    coordinators: Mapping[int, Node] = field(default_factory=lambda: _frozen({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: _frozen({}))
    topic_errors: Mapping[str, ErrorCode] = field(default_factory=lambda: _frozen({}))
    """Topics that were asked for and could not be described, with the reason."""

    def topic(self, name: str) -> TopicView | None:
        """The topic, if it is known."""
        return self.topics.get(name)

    def partition(self, tp: TopicPartition) -> PartitionView | None:
        """The partition, if it is known."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader_of(self, tp: TopicPartition) -> Node | None:
        """Where the partition's leader is, or None when there is none or it is not known."""
        partition = self.partition(tp)
        return None if partition is None else self.brokers.get(partition.leader)

    def denial_of(self, topics: Iterable[str]) -> BrokerError | None:
        """Why the first of these topics that is kept from this client could not be described; None: none is. It does
        not pass by itself, as the absence of a topic may."""
        denied = [name for name in sorted(topics) if self.topic_errors.get(name) in _DENIALS]
        return self.topic_errors[denied[0]].exception(f"topic {denied[0]!r}") if denied else None

    def leader_epoch_of(self, tp: TopicPartition) -> int:
        """The epoch of that leader, or NO_LEADER_EPOCH."""
        partition = self.partition(tp)
        return NO_LEADER_EPOCH if partition is None else partition.leader_epoch

    def partition_count(self, topic: str) -> int | None:
        """Returns the number of partitions, or None if the topic is not known."""
        view = self.topics.get(topic)
        return None if view is None else len(view.partitions)

    def partitions_of(self, topic: str) -> tuple[PartitionView, ...]:
        """The topic's partitions in the order of their numbers; empty when the topic is not known."""
        view = self.topics.get(topic)
        return () if view is None else view.partitions

    def available_partitions(self, topic: str) -> tuple[PartitionView, ...]:
        """The partitions whose leader is known and alive."""
        return tuple(each for each in self.partitions_of(topic) if each.leader in self.brokers)

    def merged(self, response: broker_pb2.MetadataResponse, asked: Iterable[str] | None) -> ClusterView:
        """This view brought up to date by an answer about the topics `asked` (None: about all there are)."""
        described = {each.name: each for each in response.topics}
        wanted = None if asked is None else set(asked)
        kept = {} if wanted is None else _without(self.topics, wanted)
        kept_errors = {} if wanted is None else _without(self.topic_errors, wanted)
        found = {
            name: _topic_view(each, self.topics.get(name)) for name, each in described.items() if not each.error_code
        }
        errors = {name: ErrorCode.of(each.error_code) for name, each in described.items() if each.error_code}
        return ClusterView(
            cluster_id=response.cluster_id,
            brokers=_frozen({each.node_id: node_of(each) for each in response.brokers}),
            controllers=tuple(node_of(each) for each in response.controllers),
            coordinators=_frozen({each.node_id: node_of(each) for each in response.coordinators}),
            topics=_frozen({**kept, **found}),
            topic_errors=_frozen({**kept_errors, **errors}),
        )

    def with_topics(self, topics: Iterable[TopicView]) -> ClusterView:
        """This view with topics that another answer than Metadata's described."""
        found = {each.name: _with_newest_leaders(each, self.topics.get(each.name)) for each in topics}
        return replace(self, topics=_frozen({**self.topics, **found}))

    def with_leader(
        self, tp: TopicPartition, leader: int, leader_epoch: int, nodes: Iterable[Node] = ()
    ) -> ClusterView:
        """Returns a view with the hinted leader. Returns this view if the hint is not newer, or if its broker is
        unknown. The answer with the hint may describe the broker in `nodes`."""
        known = self.partition(tp)
        if known is None or leader_epoch <= known.leader_epoch:
            return self
        node = next((each for each in nodes if each.node_id == leader), self.brokers.get(leader))
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
    """A node from the wire."""
    endpoint = message.endpoint
    return Node(node_id=message.node_id, host=endpoint.host, port=endpoint.port, rack=message.rack)


def _without(mapping: Mapping[str, ValueT], names: set[str]) -> dict[str, ValueT]:
    return {name: value for name, value in mapping.items() if name not in names}


def _topic_view(message: broker_pb2.TopicMetadata, known: TopicView | None) -> TopicView:
    fresh = TopicView(
        name=message.name,
        topic_id=uuid.UUID(bytes=message.topic_id),
        internal=message.internal,
        partitions=tuple(map(_partition_view, sorted(message.partitions, key=lambda each: each.partition))),
    )
    return _with_newest_leaders(fresh, known)


def _with_newest_leaders(fresh: TopicView, known: TopicView | None) -> TopicView:
    """`fresh`, but for partitions whose leader has a newer epoch in what is `known`."""
    # A topic deleted and created again starts at epoch 0: its past says nothing about it.
    if known is None or known.topic_id != fresh.topic_id:
        return fresh
    past = known.partitions
    newest = (
        past[number] if number < len(past) and past[number].leader_epoch > each.leader_epoch else each
        for number, each in enumerate(fresh.partitions)
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
