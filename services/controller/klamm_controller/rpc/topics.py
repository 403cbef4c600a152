"""The calls of the Admin service about topics and partitions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from itertools import islice

from klamm.errors import ErrorCode
from klamm.wire.calls import CallContext
from klamm.wire.v1.controller_pb2 import (
    CreatedTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    NamedResult,
    NewPartitions,
    NewTopic,
)
from klamm_controller.metadata.describe_topics import describe_topics
from klamm_controller.metadata.partitions import handle_create_partitions
from klamm_controller.metadata.policy import TopicPolicy
from klamm_controller.metadata.topics import TopicCreation, handle_delete_topics
from klamm_controller.rpc.gateway import Gateway
from klamm_controller.rpc.mutations import EXCEEDED, Mutations
from klamm_controller.rpc.rights import Permitted
from klamm_server.rpc.absent_fields import or_unknown
from klamm_server.runtime.sliced_work import map_in_slices
from klamm_server.security.needs import (
    ALTER_TOPIC,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    TOPIC_CONFIGS_SHOWN,
    TOPIC_SHOWN,
)

TOPICS_PER_TURN = 100
"""The number of topics that DescribeTopics encodes before it lets the event loop run."""
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TopicsRpcs:
    """Answers CreateTopics, DeleteTopics, CreatePartitions and DescribeTopics."""

    def __init__(self, gateway: Gateway, policy: TopicPolicy, rng: random.Random, mutations: Mutations) -> None:
        self._gateway = gateway
        self._mutations = mutations
        self._policy = policy
        self._rng = rng

    async def create_topics(self, request: CreateTopicsRequest, context: CallContext) -> CreateTopicsResponse:
        permitted: Permitted[NewTopic, CreatedTopic] = await Permitted.of(
            await map_in_slices(_with_defaults, request.topics),
            lambda topic: CREATE_TOPIC.allows(topic.name),
            lambda topic: CreatedTopic(name=topic.name, error_code=_DENIED, error_message=_DENIED.text),
        )
        charge = self._mutations.begin(request.client_id, validate_only=request.validate_only)
        admitted: Permitted[NewTopic, CreatedTopic] = await Permitted.of(
            permitted.asked,
            charge.admits_creation,
            lambda topic: CreatedTopic(name=topic.name, error_code=EXCEEDED, error_message=EXCEEDED.text),
        )
        wanted = CreateTopicsRequest(
            topics=admitted.asked, validate_only=request.validate_only, timeout_ms=request.timeout_ms
        )

        async def decided() -> CreateTopicsResponse:
            creation = TopicCreation(wanted, self._policy, self._rng)
            replies = await self._gateway.controller.submit_parts("CreateTopics", creation.parts())
            topics = [topic for reply in replies for topic in reply.topics]
            topics = permitted.results(admitted.results(await map_in_slices(_shown, topics)))
            return CreateTopicsResponse(topics=topics, throttle_time_ms=charge.throttle_ms)

        return await self._gateway.change(decided(), CreateTopicsResponse, timeout_ms=request.timeout_ms)

    async def delete_topics(self, request: DeleteTopicsRequest, context: CallContext) -> DeleteTopicsResponse:
        permitted: Permitted[str, NamedResult] = await Permitted.of(request.topics, DELETE_TOPIC.allows, _denied)
        charge = self._mutations.begin(request.client_id)
        admitted: Permitted[str, NamedResult] = await Permitted.of(permitted.asked, charge.admits_deletion, _exceeded)
        wanted = DeleteTopicsRequest(topics=admitted.asked)

        async def decided() -> DeleteTopicsResponse:
            absent = await self._absent(permitted.refused)
            reply = await self._gateway.controller.submit(
                "DeleteTopics", lambda image: handle_delete_topics(wanted, image, self._policy)
            )
            results = permitted.results(admitted.results(reply.results))
            results = [_absent(result.name) if result.name in absent else result for result in results]
            return DeleteTopicsResponse(results=results, throttle_time_ms=charge.throttle_ms)

        return await self._gateway.change(decided(), DeleteTopicsResponse, timeout_ms=request.timeout_ms)

    async def _absent(self, refused: Iterable[str]) -> frozenset[str]:
        """Returns the topics of `refused` that do not exist, if the caller may know this."""
        shown = await Permitted.of(refused, DESCRIBE_TOPIC.shows, _denied)
        if not shown.asked:
            return frozenset()
        image = await self._gateway.controller.confirm()
        return frozenset(name for name in shown.asked if name not in image.topics_by_name)

    async def create_partitions(
        self, request: CreatePartitionsRequest, context: CallContext
    ) -> CreatePartitionsResponse:
        permitted: Permitted[NewPartitions, NamedResult] = await Permitted.of(
            request.topics,
            lambda wanted: ALTER_TOPIC.allows(wanted.topic),
            lambda wanted: _denied(wanted.topic),
        )
        charge = self._mutations.begin(request.client_id, validate_only=request.validate_only)
        admitted: Permitted[NewPartitions, NamedResult] = await Permitted.of(
            permitted.asked, charge.admits_growth, lambda wanted: _exceeded(wanted.topic)
        )
        wanted = CreatePartitionsRequest(topics=admitted.asked, validate_only=request.validate_only)

        async def decided() -> CreatePartitionsResponse:
            reply = await self._gateway.controller.submit(
                "CreatePartitions",
                lambda image: handle_create_partitions(wanted, image, self._policy, self._rng),
            )
            results = permitted.results(admitted.results(reply.results))
            return CreatePartitionsResponse(results=results, throttle_time_ms=charge.throttle_ms)

        return await self._gateway.change(decided(), CreatePartitionsResponse, timeout_ms=request.timeout_ms)

    async def describe_topics(self, request: DescribeTopicsRequest, context: CallContext) -> DescribeTopicsResponse:
        async def decided() -> DescribeTopicsResponse:
            may_see = DESCRIBE_TOPIC.allows if request.topics else TOPIC_SHOWN.shows
            topics = describe_topics(request, await self._gateway.controller.confirm(), may_see)
            response = DescribeTopicsResponse()
            while some := list(islice(topics, TOPICS_PER_TURN)):
                response.topics.extend(some)
                await asyncio.sleep(0)
            return response

        return await self._gateway.answer(decided(), DescribeTopicsResponse)


def _with_defaults(topic: NewTopic) -> NewTopic:
    """Returns a copy of the topic with the number for the cluster's default, UNKNOWN, where the client left it out."""
    known = NewTopic()
    known.CopyFrom(topic)
    known.partition_count = or_unknown(topic, "partition_count")
    known.replication_factor = or_unknown(topic, "replication_factor")
    return known


def _shown(created: CreatedTopic) -> CreatedTopic:
    """Hides the size of a created topic from a caller that may not see its configs, as Kafka does."""
    if not created.error_code and not TOPIC_CONFIGS_SHOWN.shows(created.name):
        created.partition_count = created.replication_factor = -1
    return created


def _exceeded(topic: str) -> NamedResult:
    return NamedResult(name=topic, error_code=EXCEEDED, error_message=EXCEEDED.text)


def _absent(topic: str) -> NamedResult:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return NamedResult(name=topic, error_code=code, error_message=f"topic {topic!r} does not exist")


def _denied(topic: str) -> NamedResult:
    return NamedResult(name=topic, error_code=_DENIED, error_message=_DENIED.text)
