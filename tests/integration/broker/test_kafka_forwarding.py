"""Tests the answers to a Kafka client when the controllers cannot decide, or when the broker has stale metadata."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.rpc.grpc_transport import GrpcTransport
from klamm.wire.v1 import controller_pb2
from klamm.wire.v1.controller_rpc import ADMIN, AdminStub
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.codec import messages
from klamm_broker.kafka.codec.schemas import request_schema
from klamm_broker.kafka.cold.configs import ConfigApis
from klamm_broker.kafka.cold.forwarding import ActiveController
from klamm_broker.kafka.cold.replicas import ReplicaApis
from klamm_broker.kafka.cold.topics import TopicApis
from klamm_broker.kafka.requests import Request
from klamm_broker.kafka.topic_ids import TopicIds
from klamm_broker.metadata.metadata_waiters import MetadataWaiters
from klamm_server.metadata.image import MetadataImage
from klamm_server.rpc.controllers import Controllers
from klamm_server.rpc.server import RpcServer
from klamm_server.runtime.clock import SystemClock
from tests.support.broker_harness import LONG_MS
from tests.support.waiting import patience, until


class UndecidedController:
    """The active controller of a quorum that has lost its majority, so that every call times out."""


async def _times_out(self: object, request: Any, context: Any) -> Any:
    response = type(request).__name__.removesuffix("Request") + "Response"
    return getattr(controller_pb2, response)(error_code=ErrorCode.REQUEST_TIMED_OUT)


for method in ADMIN.methods:
    setattr(UndecidedController, method.name, _times_out)


def request_of(api_key: ApiKey, version: int, fields: dict[str, Any]) -> tuple[Request, Any]:
    request = Request(api_key, version, 1, "me", "10.0.0.1", memoryview(b""), 0, False)
    return request, messages._make(request_schema(api_key, version), fields)


def test_if_the_controller_times_out_each_requested_item_gets_the_error() -> None:
    async def scenario() -> None:
        server = RpcServer(max_message_bytes=1_000_000, max_concurrent_rpcs=10)
        server.add_service(ADMIN, UndecidedController())
        port = await server.start("127.0.0.1", 0)
        controller = ActiveController(
            GrpcTransport(),
            Controllers([("127.0.0.1", port)]),
            MetadataWaiters(MetadataImage.empty),
            SystemClock(),
            random.Random(1),
        )
        image = MetadataImage.empty()
        try:
            resource = {"resource_type": 2, "resource_name": "a"}
            configs = await ConfigApis(controller, lambda: image).alter_incrementally(
                *request_of(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS,
                    1,
                    {"resources": [{**resource, "configs": []}] * 2, "validate_only": False},
                )
            )
            assert [config["error_code"] for config in configs["responses"]] == [ErrorCode.REQUEST_TIMED_OUT] * 2
            described = await ConfigApis(controller, lambda: image).describe(
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
            topics = TopicApis(controller, TopicIds(lambda: image))
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
                    {"topics": [{"name": "a", "topic_id": None}], "timeout": 10_000},
                )
            )
            assert [one["error_code"] for one in deleted["responses"]] == [ErrorCode.REQUEST_TIMED_OUT]
            elected = await ReplicaApis(controller).elect_leaders(
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

    asyncio.run(asyncio.wait_for(scenario(), patience()))


class DecidedController(UndecidedController):
    """The active controller of a quorum that has created a topic by record 41. Its answer carries this index."""

    async def create_topics(self, request: Any, context: Any) -> Any:
        created = [controller_pb2.CreatedTopic(name=topic.name, partition_count=1) for topic in request.topics]
        return controller_pb2.CreateTopicsResponse(topics=created, metadata_end_index=42)


async def created_by(controller: ActiveController, timeout_ms: int) -> int:
    """Creates a topic and returns its error code."""
    topic = {"name": "a", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = TopicApis(controller, TopicIds(MetadataImage.empty))
    fields = {"topics": [topic], "timeout": timeout_ms, "validate_only": False}
    created = await topics.create_topics(*request_of(ApiKey.CREATE_TOPICS, 4, fields))
    code: int = created["topics"][0]["error_code"]
    return code


def test_a_change_is_answered_when_the_brokers_metadata_has_it_or_at_the_timeout() -> None:
    async def scenario() -> None:
        server = RpcServer(max_message_bytes=1_000_000, max_concurrent_rpcs=10)
        server.add_service(ADMIN, DecidedController())
        port = await server.start("127.0.0.1", 0)
        image = MetadataImage.empty()
        waiters = MetadataWaiters(lambda: image)
        controller = ActiveController(
            GrpcTransport(), Controllers([("127.0.0.1", port)]), waiters, SystemClock(), random.Random(1)
        )
        try:
            answer = asyncio.create_task(created_by(controller, LONG_MS))
            await controller.ask(AdminStub.create_topics, controller_pb2.CreateTopicsRequest(), timeout_ms=LONG_MS)
            for end_index in (1, 41):
                image = dataclasses.replace(image, end_index=end_index)
                waiters.wake()
                done, _ = await asyncio.wait([answer], timeout=0.05)
                assert not done, f"answered by an image that ends at {end_index}"
            image = dataclasses.replace(image, end_index=42)
            waiters.wake()
            assert await answer == ErrorCode.NONE
            image = MetadataImage.empty()
            assert await created_by(controller, 2_000) == ErrorCode.NONE, "not every broker may know it yet"
        finally:
            await controller.close()
            await server.stop(0)

    asyncio.run(asyncio.wait_for(scenario(), patience()))


class IdleController(UndecidedController):
    """A controller without ongoing reassignments."""

    async def list_partition_reassignments(self, request: Any, context: Any) -> Any:
        return controller_pb2.ListPartitionReassignmentsResponse()


@pytest.mark.parametrize("timeout_ms", [-1, 0])
def test_reassignments_are_listed_with_any_timeout_in_the_request(timeout_ms: int) -> None:
    async def scenario() -> None:
        server = RpcServer(max_message_bytes=1_000_000, max_concurrent_rpcs=10)
        server.add_service(ADMIN, IdleController())
        port = await server.start("127.0.0.1", 0)
        controller = ActiveController(
            GrpcTransport(),
            Controllers([("127.0.0.1", port)]),
            MetadataWaiters(MetadataImage.empty),
            SystemClock(),
            random.Random(1),
        )
        try:
            listed = await ReplicaApis(controller).list_reassignments(
                *request_of(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": timeout_ms, "topics": None})
            )
            assert (listed["error_code"], listed["topics"]) == (ErrorCode.NONE, [])
        finally:
            await controller.close()
            await server.stop(0)

    asyncio.run(scenario())


class SlowController(UndecidedController):
    """A controller that creates topics after the test has set `may_decide`."""

    def __init__(self) -> None:
        self.may_decide = asyncio.Event()
        self.asked: list[str] = []

    async def create_topics(self, request: Any, context: Any) -> Any:
        self.asked += [topic.name for topic in request.topics]
        await self.may_decide.wait()
        return controller_pb2.CreateTopicsResponse()


def test_the_timeout_of_one_client_does_not_end_the_requests_of_others() -> None:
    """The broker does not send their requests again either, because the controller may have created the topics."""

    def creation(name: str) -> controller_pb2.CreateTopicsRequest:
        return controller_pb2.CreateTopicsRequest(topics=[controller_pb2.NewTopic(name=name)])

    async def scenario() -> None:
        server = RpcServer(max_message_bytes=1_000_000, max_concurrent_rpcs=10)
        slow = SlowController()
        server.add_service(ADMIN, slow)
        port = await server.start("127.0.0.1", 0)
        controller = ActiveController(
            GrpcTransport(),
            Controllers([("127.0.0.1", port)]),
            MetadataWaiters(MetadataImage.empty),
            SystemClock(),
            random.Random(1),
        )
        try:
            names = ["patient-1", "patient-2", "patient-3"]
            patient = [
                asyncio.create_task(controller.ask(AdminStub.create_topics, creation(name), timeout_ms=LONG_MS))
                for name in names
            ]
            await until(lambda: sorted(slow.asked) == names, "not every request has arrived")
            with pytest.raises(BrokerError) as impatient:
                await controller.ask(AdminStub.create_topics, creation("impatient"), timeout_ms=500)
            assert impatient.value.code is ErrorCode.REQUEST_TIMED_OUT
            slow.may_decide.set()
            await asyncio.gather(*patient)
            assert sorted(name for name in slow.asked if name != "impatient") == names
        finally:
            await controller.close()
            await server.stop(0)

    asyncio.run(scenario())
