"""Metadata over gRPC: the servers of the cluster, its topics, and the leader of each partition.

Each server has its address on the listener with the name of the caller's listener. A server without such a listener is
left out, and its partitions have LISTENER_NOT_FOUND, as in Kafka.

The answer comes from the published image, so this broker already hosts its replicas of the listed partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import INTERNAL_TOPICS
from klamm.wire.v1.broker_pb2 import MetadataRequest, MetadataResponse, PartitionMetadata, TopicMetadata
from klamm.wire.v1.common_pb2 import Node
from klamm_broker.handlers.metadata import MissingTopics, leader_error
from klamm_broker.handlers.topic_rights import is_listed, may_see
from klamm_broker.messages.nodes import BrokerNodes, coordinator_node, reachable
from klamm_server.metadata.entities import NO_LEADER, PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.net.listeners import Listener, endpoint, own_listener

_InvalidRequestError = EXCEPTIONS[ErrorCode.INVALID_REQUEST]


class MetadataRpc:
    """Handles Metadata requests. `controllers` returns the Admin API's listeners of each controller, the active
    controller's first."""

    def __init__(
        self,
        missing: MissingTopics,
        image: Callable[[], MetadataImage],
        nodes: BrokerNodes,
        controllers: Callable[[], Sequence[Sequence[Listener]]],
    ) -> None:
        self._missing = missing
        self._image = image
        self._nodes = nodes
        self._controllers = controllers

    async def metadata(self, request: MetadataRequest, context: object) -> MetadataResponse:
        if request.all_topics and request.topics:
            raise _InvalidRequestError(
                f"the request sets all_topics and names {len(request.topics)} topics; expected only one of the two"
            )
        image = self._image()
        names: Iterable[str] = dict.fromkeys(request.topics)
        if request.all_topics:
            names = filter(is_listed, sorted(image.topics_by_name))
        return MetadataResponse(
            cluster_id=image.cluster_id,
            brokers=reachable(map(self._nodes.node, image.live_brokers())),
            controllers=self._controller_nodes(),
            coordinators=reachable(map(coordinator_node, image.live_coordinators())),
            topics=self._topics(image, names, request.allow_auto_topic_creation),
        )

    def _controller_nodes(self) -> list[Node]:
        return reachable(
            Node(node_id=number, endpoint=endpoint(own_listener(listeners)))
            for number, listeners in enumerate(self._controllers())
        )

    def _topics(self, image: MetadataImage, names: Iterable[str], may_create: bool) -> list[TopicMetadata]:
        brokers = image.live_brokers()
        live = frozenset(broker.broker_id for broker in brokers)
        unreachable = frozenset(broker.broker_id for broker in brokers if own_listener(broker.listeners) is None)

        def described(name: str) -> TopicMetadata:
            if not may_see(name):
                return TopicMetadata(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            topic = image.topic(name)
            if topic is None:
                return TopicMetadata(name=name, error_code=self._missing.missing(name, may_create))
            return topic_metadata(topic, live, unreachable)

        return list(map(described, names))


def topic_metadata(topic: TopicImage, live: frozenset[int], unreachable: frozenset[int]) -> TopicMetadata:
    """Returns the metadata of one topic. `live` are the ids of the brokers that are not fenced, `unreachable` of those
    that the caller cannot dial."""
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
