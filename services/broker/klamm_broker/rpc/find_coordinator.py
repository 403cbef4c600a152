"""FindCoordinator: which coordinator owns a group (batched, KIP-699).

The group's shard is a partition of `__consumer_offsets`; the controller's metadata says which coordinator owns
it. The topic is created on first use. Until there is an owner, the answer is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Any

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, coordinator_shard
from klamm.wire.v1.broker_pb2 import (
    COORDINATOR_KEY_TYPE_GROUP,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from klamm.wire.v1.controller_pb2 import NewTopic
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_broker.rpc.metadata import coordinator_node
from klamm_broker.topic_creator import TopicCreator

_INTERNAL_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024**2),
    "compression.type": "producer",
}


class FindCoordinatorRpc:
    """Handles FindCoordinator."""

    def __init__(self, replicas: ReplicaManager, topic_creator: TopicCreator, *, offsets_topic_partitions: int) -> None:
        self._replicas = replicas
        self._topic_creator = topic_creator
        self._offsets_topic_partitions = offsets_topic_partitions

    async def find_coordinator(self, request: FindCoordinatorRequest, context: Any) -> FindCoordinatorResponse:
        if request.key_type != COORDINATOR_KEY_TYPE_GROUP:
            problem = f"key type {request.key_type} is not served; expected {COORDINATOR_KEY_TYPE_GROUP} (group)"
            found = [_failed(key, ErrorCode.UNSUPPORTED_VERSION, problem) for key in request.keys]
        else:
            found = [self._find(group_id) for group_id in request.keys]
        return FindCoordinatorResponse(coordinators=found)

    def _find(self, group_id: str) -> FoundCoordinator:
        if not group_id:
            return _failed(group_id, ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        image = self._replicas.image
        topic = image.topic(GROUP_METADATA_TOPIC)
        if topic is None:
            self._create_topic()
            return _failed(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{GROUP_METADATA_TOPIC} is being created")
        shard = coordinator_shard(group_id, len(topic.partitions))
        owner = image.shard_owner(GROUP_METADATA_TOPIC, shard)
        if owner is None:
            return _failed(group_id, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"shard {shard} has no live coordinator")
        return FoundCoordinator(key=group_id, node=coordinator_node(owner))

    def _create_topic(self) -> None:
        self._topic_creator.create(
            NewTopic(
                name=GROUP_METADATA_TOPIC,
                partition_count=self._offsets_topic_partitions,
                replication_factor=-1,
                configs=_INTERNAL_TOPIC_CONFIGS,
            )
        )


def _failed(key: str, code: ErrorCode, message: str) -> FoundCoordinator:
    return FoundCoordinator(key=key, error_code=code, error_message=message)
