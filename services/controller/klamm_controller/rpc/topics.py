"""Admin: topics and partitions."""

from __future__ import annotations

import asyncio
import random
from itertools import islice
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
from klamm_controller.metadata.topics import TopicCreation, handle_delete_topics
from klamm_controller.rpc.gateway import Gateway

TOPICS_PER_TURN = 100
"""Described between two turns of the event loop."""


class TopicsRpcs:
    """CreateTopics, DeleteTopics, CreatePartitions, DescribeTopics."""

    def __init__(self, gateway: Gateway, policy: TopicPolicy, rng: random.Random) -> None:
        self._gateway = gateway
        self._policy = policy
        self._rng = rng

    async def create_topics(self, request: CreateTopicsRequest, context: Any) -> CreateTopicsResponse:
        async def decided() -> CreateTopicsResponse:
            creation = TopicCreation(request, self._policy, self._rng)
            replies = await self._gateway.controller.submit_parts("CreateTopics", creation.parts())
            return CreateTopicsResponse(topics=[topic for reply in replies for topic in reply.topics])

        return await self._gateway.change(context, decided(), CreateTopicsResponse, timeout_ms=request.timeout_ms)

    async def delete_topics(self, request: DeleteTopicsRequest, context: Any) -> DeleteTopicsResponse:
        decided = self._gateway.controller.submit(
            "DeleteTopics", lambda image: handle_delete_topics(request, image, self._policy)
        )
        return await self._gateway.change(context, decided, DeleteTopicsResponse, timeout_ms=request.timeout_ms)

    async def create_partitions(self, request: CreatePartitionsRequest, context: Any) -> CreatePartitionsResponse:
        decided = self._gateway.controller.submit(
            "CreatePartitions",
            lambda image: handle_create_partitions(request, image, self._policy, self._rng),
        )
        return await self._gateway.change(context, decided, CreatePartitionsResponse, timeout_ms=request.timeout_ms)

    async def describe_topics(self, request: DescribeTopicsRequest, context: Any) -> DescribeTopicsResponse:
        async def decided() -> DescribeTopicsResponse:
            topics = describe_topics(request, await self._gateway.controller.confirm())
            response = DescribeTopicsResponse()
            while some := list(islice(topics, TOPICS_PER_TURN)):
                response.topics.extend(some)
                await asyncio.sleep(0)
            return response

        return await self._gateway.answer(context, decided(), DescribeTopicsResponse)
