"""What a Kafka client is told when the controllers cannot decide."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from kio.index import load_request_schema

from klamm.errors import ErrorCode
from klamm.wire.service import ADMIN, methods
from klamm.wire.v1 import controller_pb2
from klamm_broker.kafka import messages
from klamm_broker.kafka.configs import Configs
from klamm_broker.kafka.forwarding import ActiveController
from klamm_broker.kafka.replicas import Replicas
from klamm_broker.kafka.requests import ApiKey, Request
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_broker.kafka.topics import Topics
from klamm_server.clock import SystemClock
from klamm_server.controllers import Controllers
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc_server import RpcServer


class UndecidedController:
    """The active controller of a quorum that has lost its majority: every call times out there."""


async def _times_out(self: object, request: Any, context: Any) -> Any:
    response = type(request).__name__.removesuffix("Request") + "Response"
    return getattr(controller_pb2, response)(error_code=ErrorCode.REQUEST_TIMED_OUT)


for method in methods(ADMIN):
    setattr(UndecidedController, method.name, _times_out)


def request_of(api_key: ApiKey, version: int, fields: dict[str, Any]) -> tuple[Request, Any]:
    request = Request(api_key, version, 1, "me", "10.0.0.1", memoryview(b""), 0, False)
    return request, messages._make(load_request_schema(api_key, version), fields)


def test_a_decision_that_took_too_long_is_an_error_of_each_thing_asked_for() -> None:
    async def scenario() -> None:
        server = RpcServer(max_message_bytes=1_000_000, max_concurrent_rpcs=10)
        server.add_service(ADMIN, UndecidedController())
        port = await server.start("127.0.0.1", 0)
        controller = ActiveController(Controllers([("127.0.0.1", port)]), SystemClock())
        image = MetadataImage.empty()
        try:
            resource = {"resource_type": 2, "resource_name": "a"}
            configs = await Configs(controller, lambda: image).alter_incrementally(
                *request_of(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS,
                    1,
                    {"resources": [{**resource, "configs": []}] * 2, "validate_only": False},
                )
            )
            assert [one["error_code"] for one in configs["responses"]] == [ErrorCode.REQUEST_TIMED_OUT] * 2
            described = await Configs(controller, lambda: image).describe(
                *request_of(
                    ApiKey.DESCRIBE_CONFIGS,
                    4,
                    {
                        "resources": [{**resource, "configuration_keys": None}],
                        "include_synonyms": False,
                        "include_documentation": False,
                    },
                )
            )
            assert [one["error_code"] for one in described["results"]] == [ErrorCode.REQUEST_TIMED_OUT]
            topics = Topics(controller, TopicIds(lambda: image))
            topic = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            created = await topics.create_topics(
                *request_of(
                    ApiKey.CREATE_TOPICS,
                    7,
                    {"topics": [{"name": "a", **topic}], "timeout": 10_000, "validate_only": False},
                )
            )
            assert [one["error_code"] for one in created["topics"]] == [ErrorCode.REQUEST_TIMED_OUT]
            deleted = await topics.delete_topics(
                *request_of(
                    ApiKey.DELETE_TOPICS,
                    6,
                    {"topics": [{"name": "a", "topic_id": uuid.UUID(int=0)}], "timeout": 10_000},
                )
            )
            assert [one["error_code"] for one in deleted["responses"]] == [ErrorCode.REQUEST_TIMED_OUT]
            elected = await Replicas(controller).elect_leaders(
                *request_of(
                    ApiKey.ELECT_LEADERS,
                    2,
                    {
                        "election_type": 0,
                        "topic_partitions": [{"topic": "a", "partitions": [0]}],
                        "timeout": 10_000,
                    },
                )
            )
            assert elected["error_code"] == ErrorCode.REQUEST_TIMED_OUT
        finally:
            await controller.close()
            await server.stop(0)

    asyncio.run(asyncio.wait_for(scenario(), 30))
