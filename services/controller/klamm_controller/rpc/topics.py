"""Admin: topics and partitions."""

from __future__ import annotations

import random
from typing import Any

from klamm.wire.v1.controller_pb2 import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicsRequest,
    DescribeTopicsResponse,
)
from klamm_controller.metadata.describe_topics import describe_topics
from klamm_controller.metadata.partitions import handle_create_partitions
from klamm_controller.metadata.policy import TopicPolicy
from klamm_controller.metadata.topics import handle_create_topics, handle_delete_topics
from klamm_controller.rpc.gateway import Gateway


class TopicsRpcs:
    """CreateTopics, DeleteTopics, CreatePartitions, DescribeTopics."""

    def __init__(self, gateway: Gateway, policy: TopicPolicy, rng: random.Random) -> None:
        self._gateway = gateway
        self._policy = policy
        self._rng = rng

    async def create_topics(self, request: CreateTopicsRequest, context: Any) -> CreateTopicsResponse:
        decided = self._gateway.controller.submit(
            "CreateTopics", lambda image: handle_create_topics(request, image, self._policy, self._rng)
        )
        return await self._gateway.answer(context, decided, CreateTopicsResponse, timeout_ms=request.timeout_ms)

    async def delete_topics(self, request: DeleteTopicsRequest, context: Any) -> DeleteTopicsResponse:
        decided = self._gateway.controller.submit(
            "DeleteTopics", lambda image: handle_delete_topics(request, image, self._policy)
        )
        return await self._gateway.answer(context, decided, DeleteTopicsResponse, timeout_ms=request.timeout_ms)

    async def create_partitions(self, request: CreatePartitionsRequest, context: Any) -> CreatePartitionsResponse:
        decided = self._gateway.controller.submit(
            "CreatePartitions",
            lambda image: handle_create_partitions(request, image, self._policy, self._rng),
        )
        return await self._gateway.answer(context, decided, CreatePartitionsResponse, timeout_ms=request.timeout_ms)

    async def describe_topics(self, request: DescribeTopicsRequest, context: Any) -> DescribeTopicsResponse:
        return await self._gateway.read(context, lambda image: describe_topics(request, image), DescribeTopicsResponse)
