"""FindCoordinator: which coordinator owns a group or a transactional id (batched, KIP-699).

Its shard is a partition of `__consumer_offsets` or of `__transaction_state`; the controller's metadata says which
coordinator owns it. The topic is created on first use. Until there is an owner, the answer is
COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Any

from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, coordinator_shard
from klamm.wire.v1.broker_pb2 import (
    COORDINATOR_KEY_TYPE_GROUP,
    COORDINATOR_KEY_TYPE_TRANSACTION,
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


_TOPICS: dict[int, str] = {
    COORDINATOR_KEY_TYPE_GROUP: GROUP_METADATA_TOPIC,
    COORDINATOR_KEY_TYPE_TRANSACTION: TRANSACTION_STATE_TOPIC,
}
_EMPTY_KEY: dict[int, tuple[ErrorCode, str]] = {
    COORDINATOR_KEY_TYPE_GROUP: (ErrorCode.INVALID_GROUP_ID, "the group id is empty"),
    COORDINATOR_KEY_TYPE_TRANSACTION: (ErrorCode.INVALID_REQUEST, "the transactional id is empty"),
}


class FindCoordinatorRpc:
    """Handles FindCoordinator."""

    def __init__(self, replicas: ReplicaManager, topic_creator: TopicCreator, *, offsets_topic_partitions: int) -> None:
        self._replicas = replicas
        self._topic_creator = topic_creator
        self._partition_counts = {
            GROUP_METADATA_TOPIC: offsets_topic_partitions,
            # The controller's transaction.state.log.num.partitions decides.
            TRANSACTION_STATE_TOPIC: -1,
        }

    async def find_coordinator(self, request: FindCoordinatorRequest, context: Any) -> FindCoordinatorResponse:
        if request.key_type not in _TOPICS:
            problem = f"key type {request.key_type} is not served; expected one of {sorted(_TOPICS)}"
            found = [_failed(key, ErrorCode.UNSUPPORTED_VERSION, problem) for key in request.keys]
        else:
            found = [self._find(request.key_type, key) for key in request.keys]
        return FindCoordinatorResponse(coordinators=found)

    def _find(self, key_type: int, key: str) -> FoundCoordinator:
        if not key:
            return _failed(key, *_EMPTY_KEY[key_type])
        name = _TOPICS[key_type]
        image = self._replicas.image
        topic = image.topic(name)
        if topic is None:
            self._create_topic(name)
            return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} is being created")
        shard = coordinator_shard(key, len(topic.partitions))
        owner = image.shard_owner(name, shard)
        if owner is None:
            return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name}-{shard} has no live coordinator")
        return FoundCoordinator(key=key, node=coordinator_node(owner))

    def _create_topic(self, name: str) -> None:
        self._topic_creator.create(
            NewTopic(
                name=name,
                partition_count=self._partition_counts[name],
                replication_factor=-1,
                configs=_INTERNAL_TOPIC_CONFIGS,
            )
        )


def _failed(key: str, code: ErrorCode, message: str) -> FoundCoordinator:
    return FoundCoordinator(key=key, error_code=code, error_message=message)
