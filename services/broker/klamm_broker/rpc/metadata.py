"""Metadata: the servers of the cluster, its topics, and who leads each partition.

Servers are named with what the caller dials: by the listener that the call came in by. Who has none of that name is
left out, and what it leads is LISTENER_NOT_FOUND, as Kafka's.

Answered from the published image, so a partition that is named here is one this broker already hosts, if it
is to. A topic that does not exist is created on the way when both the request and
`auto.create.topics.enable` allow it; until it is there the answer is LEADER_NOT_AVAILABLE, as Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import INTERNAL_TOPICS, topic_name_problem
from klamm.wire.v1.broker_pb2 import MetadataRequest, MetadataResponse, PartitionMetadata, TopicMetadata
from klamm.wire.v1.common_pb2 import Node
from klamm.wire.v1.controller_pb2 import NewTopic
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.topic_creator import TopicCreator
from klamm_server.listeners import Listener, endpoint, seen_by_caller
from klamm_server.metadata.image import (
    NO_LEADER,
    BrokerImage,
    CoordinatorImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)

_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


class MetadataRpc:
    """Handles Metadata. `controllers` says what clients of the Admin API dial, the active controller first."""

    def __init__(
        self,
        replicas: ReplicaManager,
        topic_creator: TopicCreator,
        *,
        controllers: Callable[[], Sequence[Sequence[Listener]]],
        auto_create_topics: bool,
    ) -> None:
        self._replicas = replicas
        self._topic_creator = topic_creator
        self._controllers = controllers
        self._auto_create_topics = auto_create_topics

    async def metadata(self, request: MetadataRequest, context: Any) -> MetadataResponse:
        if request.all_topics and request.topics:
            raise _InvalidRequestError(f"all_topics and {len(request.topics)} topics by name; expected one of them")
        image = self._replicas.image
        names = sorted(image.topics_by_name) if request.all_topics else dict.fromkeys(request.topics)
        return MetadataResponse(
            cluster_id=image.cluster_id,
            brokers=_reachable(map(broker_node, image.live_brokers())),
            controllers=self._controller_nodes(),
            coordinators=_reachable(map(coordinator_node, image.live_coordinators())),
            topics=self._topics(image, names, request.allow_auto_topic_creation),
        )

    def _controller_nodes(self) -> list[Node]:
        return _reachable(
            Node(node_id=number, endpoint=endpoint(seen_by_caller(listeners)))
            for number, listeners in enumerate(self._controllers())
        )

    def _topics(self, image: MetadataImage, names: Iterable[str], may_create: bool) -> list[TopicMetadata]:
        brokers = image.live_brokers()
        live = frozenset(broker.broker_id for broker in brokers)
        unreachable = frozenset(broker.broker_id for broker in brokers if seen_by_caller(broker.listeners) is None)
        return [
            topic_metadata(topic, live, unreachable)
            if (topic := image.topic(name)) is not None
            else TopicMetadata(name=name, error_code=self.missing(name, may_create))
            for name in names
        ]

    def missing(self, name: str, may_create: bool) -> ErrorCode:
        """What to answer for a topic that does not exist; has it created if everybody allows it."""
        if topic_name_problem(name) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if not (self._auto_create_topics and may_create):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._topic_creator.create(NewTopic(name=name, partition_count=-1, replication_factor=-1))

    async def created(self, names: Iterable[str], *, timeout_ms: int) -> None:
        """As `TopicCreator.created`, for those of which `missing` has said LEADER_NOT_AVAILABLE."""
        await self._topic_creator.created(names, timeout_ms=timeout_ms)


def _reachable(nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if node.HasField("endpoint")]


def leader_error(leader: int, unreachable: frozenset[int]) -> ErrorCode:
    """What is wrong with a partition's leader for a client that cannot dial `unreachable`."""
    if leader < 0:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.LISTENER_NOT_FOUND if leader in unreachable else ErrorCode.NONE


def topic_metadata(topic: TopicImage, live: frozenset[int], unreachable: frozenset[int]) -> TopicMetadata:
    """One topic; `live` are the ids of the unfenced brokers, `unreachable` those that the caller cannot dial."""
    return TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition_metadata(partition, live, unreachable) for partition in topic.partitions],
    )


def _partition_metadata(
    partition: PartitionImage, live: frozenset[int], unreachable: frozenset[int]
) -> PartitionMetadata:
    error = leader_error(partition.leader, unreachable)
    return PartitionMetadata(
        error_code=error,
        partition=partition.partition,
        leader=NO_LEADER if error else partition.leader,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        offline_replicas=[replica for replica in partition.replicas if replica not in live],
    )


def broker_node(broker: BrokerImage) -> Node:
    """How the caller sees a broker; without an endpoint, if it cannot dial it."""
    return Node(
        node_id=broker.broker_id,
        endpoint=endpoint(seen_by_caller(broker.listeners)),
        rack=broker.rack,
        fenced=broker.fenced,
    )


def coordinator_node(coordinator: CoordinatorImage) -> Node:
    """How the caller sees a coordinator; without an endpoint, if it cannot dial it."""
    return Node(
        node_id=coordinator.coordinator_id,
        endpoint=endpoint(seen_by_caller(coordinator.listeners)),
        fenced=coordinator.fenced,
    )
