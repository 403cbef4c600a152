"""Forwards requests about topics to the active controller: CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from klamm.errors import BrokerError, ErrorCode
from klamm.quotas import CONTROLLER_MUTATION_RATE
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.controller_rpc import AdminStub
from klamm.wire.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_TOPIC
from klamm_broker.kafka.api import ApiKey, Versions, api
from klamm_broker.kafka.codec.fields import Fields, milliseconds
from klamm_broker.kafka.cold.configs import described_config
from klamm_broker.kafka.cold.forwarding import ActiveController
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds, id_bytes, unknown_id
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.needs import TOPIC_CONFIGS_SHOWN

_CONFIGS_SINCE: Final = 5
_TOPICS_PER_TURN: Final = 100
"""The created topics that are described in one turn of the event loop, because each has dozens of configs."""
_NO_CONFIGS: Final = pb.DescribedConfigs()


class TopicApis:
    """Answers requests about topics. Each method takes a decoded request and returns the answer's fields."""

    def __init__(self, controller: ActiveController, topic_ids: TopicIds) -> None:
        self._controller = controller
        self._topic_ids = topic_ids

    @api(ApiKey.CREATE_TOPICS, Versions(2, 7, flexible=5), forwarded_to="Admin/CreateTopics", is_whole=True)
    async def create_topics(self, request: Request, body: Any) -> Fields:
        timeout_ms = milliseconds(body.timeout)
        refused = [_refused(topic) for topic in body.topics if _configs_without_value(topic)]
        ask = pb.CreateTopicsRequest(
            topics=[_new_topic(topic) for topic in body.topics if not _configs_without_value(topic)],
            validate_only=body.validate_only,
            timeout_ms=timeout_ms,
            client_id=request.client_id,
        )
        try:
            answer = await self._controller.change(AdminStub.create_topics, ask, timeout_ms=timeout_ms)
            _throttle(request, answer.throttle_time_ms)
        except BrokerError as error:
            failed = [
                pb.CreatedTopic(name=topic.name, error_code=error.code, error_message=error.message)
                for topic in ask.topics
            ]
            return {"topics": [_created(topic, _NO_CONFIGS) for topic in (*failed, *refused)]}
        made = [topic.name for topic in answer.topics if not topic.error_code]
        configs: Mapping[str, pb.DescribedConfigs] = {}
        if request.version >= _CONFIGS_SINCE and not body.validate_only:
            configs = await self._configs_of(made, timeout_ms)
        topics = await map_in_slices(
            lambda topic: _created(topic, configs.get(topic.name, _NO_CONFIGS)),
            (*answer.topics, *refused),
            per_turn=_TOPICS_PER_TURN,
        )
        return {"topics": topics}

    async def _configs_of(self, topics: list[str], timeout_ms: int) -> Mapping[str, pb.DescribedConfigs]:
        """Returns the effective configs of created topics (KIP-525). An error concerns only the configs, because the
        topics exist."""
        shown = [name for name in topics if TOPIC_CONFIGS_SHOWN.shows(name)]
        configs = dict.fromkeys(topics, pb.DescribedConfigs(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        for first in range(0, len(shown), _TOPICS_PER_TURN):
            configs.update(await self._shown_configs(shown[first : first + _TOPICS_PER_TURN], timeout_ms))
        return configs

    async def _shown_configs(self, topics: list[str], timeout_ms: int) -> Mapping[str, pb.DescribedConfigs]:
        resources = [pb.ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name=name) for name in topics]
        ask = pb.DescribeConfigsRequest(
            resources=[pb.DescribeConfigsResource(resource=resource) for resource in resources]
        )
        try:
            answer = await self._controller.ask(AdminStub.describe_configs, ask, timeout_ms=timeout_ms)
            results = list(answer.results)
        except BrokerError as error:
            results = [pb.DescribedConfigs(resource=resource, error_code=error.code) for resource in resources]
        return {result.resource.name: result for result in results}

    @api(ApiKey.DELETE_TOPICS, Versions(1, 6, flexible=4), forwarded_to="Admin/DeleteTopics")
    async def delete_topics(self, request: Request, body: Any) -> Fields:
        if request.version >= 6:
            named = [
                (
                    topic.name if topic.name is not None else self._topic_ids.name_of(id_bytes(topic.topic_id)),
                    topic.topic_id,
                )
                for topic in body.topics
                if (topic.name is None) != (topic.topic_id is None)
            ]
            refused = [_named_badly(topic) for topic in body.topics if (topic.name is None) == (topic.topic_id is None)]
        else:
            named = [(name, None) for name in body.topic_names]
            refused = []
        ids = {name: self._topic_ids.id_of(name) for name, _ in named}
        by_id = {name: topic_id for name, topic_id in named if topic_id is not None}
        known = [name for name, _ in named if unknown_id(name) is None]
        results = [
            *await self._delete_topics(request, known, milliseconds(body.timeout)),
            *(
                pb.NamedResult(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                for name, _ in named
                if unknown_id(name) is not None
            ),
        ]
        responses = [
            {
                "name": None if result.name in by_id and result.error_code else result.name,
                "topic_id": by_id.get(result.name) or uuid.UUID(bytes=_shown_id(result, ids)),
                "error_code": result.error_code,
                "error_message": result.error_message or None,
            }
            for result in results
        ]
        return {"responses": [*refused, *responses]}

    async def _delete_topics(self, request: Request, names: list[str], timeout_ms: int) -> list[pb.NamedResult]:
        ask = pb.DeleteTopicsRequest(
            topics=names,
            timeout_ms=timeout_ms,
            client_id=request.client_id,
        )
        try:
            answer = await self._controller.change(AdminStub.delete_topics, ask, timeout_ms=timeout_ms)
            _throttle(request, answer.throttle_time_ms)
        except BrokerError as error:
            return _all_failed(names, error)
        return list(answer.results)

    @api(ApiKey.CREATE_PARTITIONS, Versions(0, 3, flexible=2), forwarded_to="Admin/CreatePartitions", is_whole=True)
    async def create_partitions(self, request: Request, body: Any) -> Fields:
        timeout_ms = milliseconds(body.timeout)
        ask = pb.CreatePartitionsRequest(
            topics=[
                pb.NewPartitions(
                    topic=topic.name,
                    total_count=topic.count,
                    assignments=_new_replicas(topic),
                )
                for topic in body.topics
            ],
            validate_only=body.validate_only,
            timeout_ms=timeout_ms,
            client_id=request.client_id,
        )
        try:
            answer = await self._controller.change(AdminStub.create_partitions, ask, timeout_ms=timeout_ms)
            _throttle(request, answer.throttle_time_ms)
            results = list(answer.results)
        except BrokerError as error:
            results = _all_failed([topic.topic for topic in ask.topics], error)
        return {
            "results": [
                {"name": result.name, "error_code": result.error_code, "error_message": result.error_message or None}
                for result in results
            ]
        }


def _throttle(request: Request, throttle_ms: int) -> None:
    """Throttles the client for as long as the controller says. This broker's metadata may get the quota a moment
    later."""
    if request.throttle is not None:
        request.throttle.extend(CONTROLLER_MUTATION_RATE, throttle_ms)


def _shown_id(result: pb.NamedResult, ids: Mapping[str, bytes]) -> bytes:
    """Returns the topic's id, or zeros if the caller may not delete the topic by its name."""
    denied = result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return bytes(16) if denied else ids.get(result.name, bytes(16))


def _named_badly(topic: Any) -> Fields:
    """Returns the error for a deletion that names a topic by both name and id, or by neither."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.INVALID_REQUEST,
        "error_message": "the request names a topic by both its name and its id, or by neither; expected one of the"
        " two",
    }


def _new_topic(topic: Any) -> pb.NewTopic:
    return pb.NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            pb.ReplicaAssignment(partition=assignment.partition_index, broker_ids=assignment.broker_ids)
            for assignment in topic.assignments
        ],
        configs={config.name: config.value for config in topic.configs},
    )


def _refused(topic: Any) -> pb.CreatedTopic:
    message = f"a null value is not supported for {_configs_without_value(topic)}"
    return pb.CreatedTopic(name=topic.name, error_code=ErrorCode.INVALID_CONFIG, error_message=message)


def _configs_without_value(topic: Any) -> list[str]:
    return [config.name for config in topic.configs if config.value is None]


def _new_replicas(topic: Any) -> list[pb.ReplicaAssignment]:
    """Returns the replicas of new partitions with their partition numbers.

    Kafka's assignments have no numbers. They are for the last partitions that the topic will have. If there are too
    many or too few, the controller refuses their numbers."""
    assignments = topic.assignments
    if assignments is None:
        return []
    if not assignments:
        # An empty list has too few assignments. In Klamm's request it would let the controller choose.
        return [pb.ReplicaAssignment(partition=topic.count)]
    numbers = range(topic.count - len(assignments), topic.count)
    return [
        pb.ReplicaAssignment(partition=number, broker_ids=assignment.broker_ids)
        for number, assignment in zip(numbers, assignments, strict=True)
    ]


def _created(topic: pb.CreatedTopic, described: pb.DescribedConfigs) -> Fields:
    """Returns a topic of the answer. As in Kafka, a client that may not see its configs does not see its size."""
    is_shown = not topic.error_code and described.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {
        "name": topic.name,
        "topic_id": uuid.UUID(bytes=topic.topic_id or bytes(16)),
        "error_code": topic.error_code,
        "error_message": topic.error_message or None,
        "num_partitions": topic.partition_count if is_shown else -1,
        "replication_factor": topic.replication_factor if is_shown else -1,
        "topic_config_error_code": described.error_code,
        "configs": [described_config(config) for config in described.configs],
    }


def _all_failed(names: Iterable[str], error: BrokerError) -> list[pb.NamedResult]:
    return [pb.NamedResult(name=name, error_code=error.code, error_message=error.message) for name in names]
