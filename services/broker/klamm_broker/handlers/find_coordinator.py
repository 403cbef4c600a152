"""FindCoordinator: finds the coordinator that owns a group or a transactional id.

The key is hashed to a shard, which is a partition of `__consumer_offsets` or `__transaction_state`. The controller's
metadata names the coordinator that owns the shard. The topic is created on first use. Until the shard has an owner, the
answer is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Final

from klamm.errors import EXCEPTIONS, ErrorCode
from klamm.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, coordinator_shard
from klamm_broker.metadata.topic_creator import TopicCreator
from klamm_broker.replica.replica_manager import ReplicaManager
from klamm_server.metadata.entities import CoordinatorImage
from klamm_server.security.needs import DESCRIBE_GROUP, DESCRIBE_TRANSACTION, Need

COORDINATOR_KEY_TYPE_GROUP: Final = 0
COORDINATOR_KEY_TYPE_TRANSACTION: Final = 1
"""Both key types have Kafka's numbers, also in gRPC."""

_NotAvailableError = EXCEPTIONS[ErrorCode.COORDINATOR_NOT_AVAILABLE]

_INTERNAL_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024**2),
    "compression.type": "producer",
}


_TOPICS: dict[int, str] = {
    COORDINATOR_KEY_TYPE_GROUP: GROUP_METADATA_TOPIC,
    COORDINATOR_KEY_TYPE_TRANSACTION: TRANSACTION_STATE_TOPIC,
}
_NEEDS: dict[int, Need] = {
    COORDINATOR_KEY_TYPE_GROUP: DESCRIBE_GROUP,
    COORDINATOR_KEY_TYPE_TRANSACTION: DESCRIBE_TRANSACTION,
}
_EMPTY_KEY: dict[int, tuple[ErrorCode, str]] = {
    COORDINATOR_KEY_TYPE_GROUP: (ErrorCode.INVALID_GROUP_ID, "the group id is empty"),
    COORDINATOR_KEY_TYPE_TRANSACTION: (ErrorCode.INVALID_REQUEST, "the transactional id is empty"),
}


class CoordinatorFinder:
    """Finds the coordinator of a group or transactional id for both protocols."""

    def __init__(self, replicas: ReplicaManager, topic_creator: TopicCreator, *, offsets_topic_partitions: int) -> None:
        self._replicas = replicas
        self._topic_creator = topic_creator
        self._partition_counts = {
            GROUP_METADATA_TOPIC: offsets_topic_partitions,
            # -1: the controller's transaction.state.log.num.partitions sets the number of partitions.
            TRANSACTION_STATE_TOPIC: -1,
        }

    def owner(self, key_type: int, key: str) -> CoordinatorImage:
        """Returns the coordinator that owns the key. Raises BrokerError if the key is bad, if the caller may not
        describe it, or (COORDINATOR_NOT_AVAILABLE) if it has no owner yet."""
        if key_type not in _TOPICS:
            raise ErrorCode.INVALID_REQUEST.exception(
                f"key type {key_type} is not supported; expected one of {sorted(_TOPICS)}"
            )
        if not key:
            code, message = _EMPTY_KEY[key_type]
            raise code.exception(message)
        _NEEDS[key_type].require(key)
        name = _TOPICS[key_type]
        image = self._replicas.image
        topic = image.topic(name)
        if topic is None:
            self._create_topic(name)
            raise _NotAvailableError(f"the topic {name} is being created")
        shard = coordinator_shard(key, len(topic.partitions))
        owner = image.shard_owner(name, shard)
        if owner is None:
            raise _NotAvailableError(f"{name}-{shard} has no live coordinator")
        return owner

    def _create_topic(self, name: str) -> None:
        self._topic_creator.create(name, partition_count=self._partition_counts[name], configs=_INTERNAL_TOPIC_CONFIGS)
