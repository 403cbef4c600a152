"""Creates and deletes topics (createTopics and deleteTopics of Kafka's ReplicationControlManager).

Each topic of a request succeeds or fails by itself. A topic that fails makes no record. The records of a new topic, its
partitions and its configs are in one batch, and so is the assignment of an internal topic's shards.

An internal topic gets its partition count and configs from the cluster's settings, whatever the request says, because
the coordinators' shards depend on them. An internal topic cannot be deleted.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from klamm.errors import ErrorCode
from klamm.model import (
    AUDIT_TOPIC,
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    SHARD_TOPICS,
    topic_collision_key,
    topic_name_problem,
)
from klamm.wire.v1.controller_pb2 import (
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NamedResult,
    NewTopic,
)
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_TOPIC,
    ConfigRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from klamm_controller.metadata.assignments import chosen_replicas
from klamm_controller.metadata.configs import check_topic_configs
from klamm_controller.metadata.decision import Decision, Refusal
from klamm_controller.metadata.partitions import partition_records
from klamm_controller.metadata.placement import place_replicas
from klamm_controller.metadata.policy import DEFAULT, TopicPolicy, check_budget
from klamm_controller.metadata.shards import assignment_records
from klamm_server.config.config_defs import normal_text
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import can_collide, replay

PARTITIONS_PER_EVENT = 100
"""The partitions that one event creates. This takes about two milliseconds of the queue."""

_SHARD_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
"""The configs of __consumer_offsets and __transaction_state, as in Kafka (GroupMetadataManager,
TransactionStateManager)."""
INTERNAL_TOPIC_CONFIGS = {
    **dict.fromkeys(SHARD_TOPICS, _SHARD_TOPIC_CONFIGS),
    AUDIT_TOPIC: {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 3600 * 1000)},
}
"""The configs with which each internal topic is created, whichever server creates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A topic that is about to be created."""

    topic_id: uuid.UUID
    replicas: list[tuple[int, ...]]
    configs: Mapping[str, str]


class TopicCreation:
    """A CreateTopics request, handled in parts, so that the queue handles other events between them. Each part uses the
    current image."""

    def __init__(self, request: CreateTopicsRequest, policy: TopicPolicy, rng: random.Random) -> None:
        self._request = request
        self._policy = policy
        self._rng = rng
        self._asked = Counter(topic.name for topic in request.topics)
        self._waiting = deque(request.topics)
        self._budget = policy.partitions_per_request_max
        self._created: dict[str, str] = {}
        """The names of the topics that were created so far, by collision key."""

    def parts(self) -> Iterator[Callable[[MetadataImage], Decision[CreateTopicsResponse]]]:
        """Yields the handlers to run, one after the other. Yields at least one."""
        yield self.next_part
        while self._waiting:
            yield self.next_part

    def next_part(
        self, image: MetadataImage, partitions_max: int = PARTITIONS_PER_EVENT
    ) -> Decision[CreateTopicsResponse]:
        """Creates the next topics, with at most `partitions_max` partitions in all, unless a single topic has more."""
        records: list[MetadataRecord] = []
        results: list[CreatedTopic] = []
        room = partitions_max
        while self._waiting and (not results or room > 0):
            topic = self._waiting.popleft()
            room -= 1
            try:
                self._check_name(topic.name, image)
                plan = _plan(topic, image, self._policy, self._budget, self._rng)
            except Refusal as refusal:
                results.append(CreatedTopic(name=topic.name, error_code=refusal.code, error_message=refusal.message))
                continue
            self._created[topic_collision_key(topic.name)] = topic.name
            self._budget -= len(plan.replicas)
            room -= len(plan.replicas)
            records += _records(topic.name, plan, image)
            results.append(_created(topic.name, plan))
        reply = CreateTopicsResponse(topics=results)
        if self._request.validate_only or not records:
            return Decision(reply=reply)
        if any(result.name in INTERNAL_TOPICS for result in results):
            records += assignment_records(replay(image, records, image.end_index + len(records)))
        return Decision(records=tuple(records), reply=reply)

    def _check_name(self, name: str, image: MetadataImage) -> None:
        """Raises Refusal unless a topic of this name may be created now."""
        if problem := topic_name_problem(name):
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name == CLUSTER_METADATA_TOPIC:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"{name} cannot be created: the name is reserved for the controllers' metadata log",
            )
        if self._asked[name] > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"topic {name} is named {self._asked[name]} times")
        if name in image.topics_by_name:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if not can_collide(name):
            return
        key = topic_collision_key(name)
        if other := image.names_by_collision_key.get(key) or self._created.get(key):
            raise Refusal(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name} collides with topic {other}: '.' and '_' are the same in metric names",
            )


def handle_delete_topics(
    request: DeleteTopicsRequest, image: MetadataImage, policy: TopicPolicy
) -> Decision[DeleteTopicsResponse]:
    """Deletes topics with their partitions and configs. Each topic succeeds or fails by itself."""
    asked = Counter(request.topics)
    records = []
    results = []
    for name in request.topics:
        try:
            records.append(_removal(name, asked[name], image, policy))
        except Refusal as refusal:
            results.append(NamedResult(name=name, error_code=refusal.code, error_message=refusal.message))
        else:
            results.append(NamedResult(name=name))
    return Decision(records=tuple(records), reply=DeleteTopicsResponse(results=results))


def _removal(name: str, times_asked: int, image: MetadataImage, policy: TopicPolicy) -> MetadataRecord:
    if not policy.delete_topic_enable:
        raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if times_asked > 1:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"topic {name} is named {times_asked} times")
    topic = image.topic(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    if name in INTERNAL_TOPICS:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is internal and cannot be deleted")
    return MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic.topic_id.bytes))


def _plan(topic: NewTopic, image: MetadataImage, policy: TopicPolicy, budget: int, rng: random.Random) -> _Plan:
    given = INTERNAL_TOPIC_CONFIGS.get(topic.name, topic.configs)
    configs = {name: normal_text(name, text) for name, text in given.items()}
    check_topic_configs(configs)
    if topic.assignments:
        replicas = _replicas_by_hand(topic, image, policy, budget)
    else:
        replicas = _placed_replicas(topic, image, policy, budget, rng)
    return _Plan(topic_id=_new_topic_id(image, rng), replicas=replicas, configs=configs)


def _placed_replicas(
    topic: NewTopic, image: MetadataImage, policy: TopicPolicy, budget: int, rng: random.Random
) -> list[tuple[int, ...]]:
    partition_count = policy.partition_count(topic.name, topic.partition_count)
    if partition_count < 1:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} cannot have {partition_count} partitions: expected at least 1, or {DEFAULT} for"
            " the default",
        )
    check_budget(topic.name, partition_count, budget, policy)
    replication_factor = policy.replication_factor(topic.name, topic.replication_factor)
    if replication_factor < 1:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {topic.name} cannot have {replication_factor} replicas: expected at least 1, or {DEFAULT} for"
            " the default",
        )
    return place_replicas(image.brokers, partition_count, replication_factor, rng)


def _replicas_by_hand(topic: NewTopic, image: MetadataImage, policy: TopicPolicy, budget: int) -> list[tuple[int, ...]]:
    if (topic.partition_count, topic.replication_factor) != (DEFAULT, DEFAULT):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"topic {topic.name} has assigned replicas: its partition count ({topic.partition_count}) and"
            f" replication factor ({topic.replication_factor}) must be {DEFAULT}",
        )
    check_budget(topic.name, len(topic.assignments), budget, policy)
    replicas = chosen_replicas(topic.name, topic.assignments, image, first_partition=0, replication_factor=None)
    if topic.name in INTERNAL_TOPICS and len(replicas) != policy.partition_count(topic.name, DEFAULT):
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} is internal: it has {policy.partition_count(topic.name, DEFAULT)}"
            f" partitions, not {len(replicas)}",
        )
    return replicas


def _new_topic_id(image: MetadataImage, rng: random.Random) -> uuid.UUID:
    while True:
        topic_id = uuid.UUID(int=rng.getrandbits(128), version=4)
        if topic_id not in image.topics_by_id:
            return topic_id


def _records(name: str, plan: _Plan, image: MetadataImage) -> Iterator[MetadataRecord]:
    yield MetadataRecord(topic=TopicRecord(name=name, topic_id=plan.topic_id.bytes))
    for key, value in sorted(plan.configs.items()):
        yield MetadataRecord(
            config=ConfigRecord(resource_type=CONFIG_RESOURCE_TYPE_TOPIC, resource_name=name, name=key, value=value)
        )
    yield from partition_records(plan.topic_id, plan.replicas, image)


def _created(name: str, plan: _Plan) -> CreatedTopic:
    return CreatedTopic(
        name=name,
        topic_id=plan.topic_id.bytes,
        partition_count=len(plan.replicas),
        replication_factor=len(plan.replicas[0]),
    )
