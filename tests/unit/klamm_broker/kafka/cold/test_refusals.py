"""Tests the requests that are refused before a handler is called, with Kafka's error codes."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from klamm.errors import ErrorCode
from klamm.wire.v1 import controller_pb2
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.cluster import ClusterApis
from klamm_broker.kafka.cold.consumer_groups import ConsumerGroupApis
from klamm_broker.kafka.cold.groups import GroupApis
from klamm_broker.kafka.cold.topics import TopicApis
from klamm_broker.kafka.cold.transactions import TransactionApis
from klamm_broker.kafka.hot.api_versions import api_versions
from klamm_broker.kafka.served_apis import SPOKEN
from tests.support.cold_requests import ALONE, TOPIC_IDS, ScriptedCoordinators, answer_of, request_of

NOBODY: Any = ScriptedCoordinators({})
"""Coordinators that must not be asked."""


class CreatingController:
    """A controller that creates and deletes every topic that it is asked to."""

    async def change(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        if rpc.__name__ == "create_topics":
            created = [controller_pb2.CreatedTopic(name=topic.name) for topic in request.topics]
            return controller_pb2.CreateTopicsResponse(topics=created)
        assert rpc.__name__ == "delete_topics"
        results = [controller_pb2.NamedResult(name=name) for name in request.topics]
        return controller_pb2.DeleteTopicsResponse(results=results)


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [
        ("librdkafka", "2.16.0-RC3", ErrorCode.NONE),
        ("", "1", ErrorCode.INVALID_REQUEST),
        ("a client", "1", ErrorCode.INVALID_REQUEST),
        ("client", "-1", ErrorCode.INVALID_REQUEST),
        ("client.", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_software_name_may_have_only_letters_digits_dots_and_dashes(
    name: str, version: str, code: ErrorCode
) -> None:
    fields = {"client_software_name": name, "client_software_version": version}
    answer = api_versions(request_of(ApiKey.API_VERSIONS, 4, fields), SPOKEN, 1, "cluster", 1).value()
    assert int.from_bytes(answer[:2], "big", signed=True) == code


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("cluster", 1, ErrorCode.NONE),
        ("cluster", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("cluster", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_expects_another_cluster_or_node_must_bootstrap_again(
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """The error is that of KIP-1242."""
    fields = {"client_software_name": "c", "client_software_version": "1", "cluster_id": cluster_id, "node_id": node_id}
    answer = api_versions(request_of(ApiKey.API_VERSIONS, 5, fields), SPOKEN, 1, "cluster", 1).value()
    assert int.from_bytes(answer[:2], "big", signed=True) == code


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 7)])
@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_init_producer_id_with_only_an_id_or_only_an_epoch_is_refused(
    transactional_id: str | None, producer_id: int, epoch: int
) -> None:
    fields = {
        "transactional_id": transactional_id,
        "transaction_timeout": 1_000,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }
    handle = TransactionApis(NOBODY, ALONE, TOPIC_IDS, None).init_producer_id
    answer = asyncio.run(answer_of(handle, ApiKey.INIT_PRODUCER_ID, 4, fields))
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_sync_group_without_a_protocol_name_is_refused_from_version_5_on() -> None:
    fields = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocol_name": None,
        "assignments": [],
    }
    coordinators: Any = ScriptedCoordinators({"sync_group": lambda _: pb.SyncGroupResponse(assignment=b"a")})
    handle = GroupApis(coordinators, TOPIC_IDS, ALONE).sync_group
    answer = asyncio.run(answer_of(handle, ApiKey.SYNC_GROUP, 5, fields))
    assert (answer.error_code, answer.assignment) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, b"")
    before = asyncio.run(answer_of(handle, ApiKey.SYNC_GROUP, 4, fields))
    assert (before.error_code, before.assignment) == (ErrorCode.NONE, b"a")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": "  "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": ""}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_a_consumer_group_heartbeat_with_an_empty_string_for_an_optional_field_is_refused(
    changes: dict[str, str], code: ErrorCode
) -> None:
    fields = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 1_000,
        "topic_partitions": [],
        **changes,
    }
    answer = asyncio.run(
        answer_of(ConsumerGroupApis(NOBODY, ALONE).heartbeat, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)
    )
    assert (answer.error_code, answer.member_id) == (code, None)


def test_only_the_metadata_log_has_a_quorum() -> None:
    topics = [
        {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]},
        {"topic_name": "a", "partitions": [{"partition_index": 3}]},
    ]
    handle = ClusterApis(None, None, None).describe_quorum
    answer = asyncio.run(answer_of(handle, ApiKey.DESCRIBE_QUORUM, 2, {"topics": topics}))
    assert answer.error_code == ErrorCode.NONE
    assert [
        (topic.topic_name, partition.partition_index, int(partition.error_code))
        for topic in answer.topics
        for partition in topic.partitions
    ] == [("__cluster_metadata", 0, 3), ("a", 3, 3)]


def test_a_topic_with_a_config_without_value_is_not_created() -> None:
    def wanted(name: str, value: str | None) -> dict[str, Any]:
        configs = [{"name": "retention.ms", "value": value}]
        return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}

    fields = {"topics": [wanted("a", None), wanted("b", "1")], "timeout": 1_000, "validate_only": False}
    handle = TopicApis(CreatingController(), TOPIC_IDS).create_topics
    answer = asyncio.run(answer_of(handle, ApiKey.CREATE_TOPICS, 4, fields))
    assert {topic.name: ErrorCode.of(topic.error_code) for topic in answer.topics} == {
        "a": ErrorCode.INVALID_CONFIG,
        "b": ErrorCode.NONE,
    }


def test_a_topic_deletion_with_both_or_neither_of_name_and_id_is_refused() -> None:
    some_id = uuid.UUID(int=7)
    topics = [{"name": "a", "topic_id": None}, {"name": "b", "topic_id": some_id}, {"name": None, "topic_id": None}]
    handle = TopicApis(CreatingController(), TOPIC_IDS).delete_topics
    answer = asyncio.run(answer_of(handle, ApiKey.DELETE_TOPICS, 6, {"topics": topics, "timeout": 1_000}))
    assert {(response.name, response.topic_id): ErrorCode.of(response.error_code) for response in answer.responses} == {
        ("a", None): ErrorCode.NONE,
        ("b", some_id): ErrorCode.INVALID_REQUEST,
        (None, None): ErrorCode.INVALID_REQUEST,
    }
