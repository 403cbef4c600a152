"""Tests calls of Admin about topics and configs, by a caller that may change or see some of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    CONFIG_RESOURCE_TYPE_GROUP,
    CONFIG_RESOURCE_TYPE_TOPIC,
)
from klamm_controller.metadata.decision import Decision
from klamm_controller.rpc.configs import ConfigsRpcs
from klamm_controller.rpc.mutations import Mutations
from klamm_controller.rpc.topics import TopicsRpcs
from klamm_server.metadata.image import MetadataImage
from klamm_server.runtime.clock import SystemClock
from klamm_server.runtime.sliced_work import ITEMS_PER_TURN
from klamm_server.security.quotas.mutation_quotas import MutationQuotas
from klamm_server.security.quotas.rate_window import WindowSpan
from tests.support.callers import allow, called_with
from tests.unit.klamm_controller.conftest import Cluster, policy

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CONTEXT: Any = None


class Gateway:
    """A gateway that decides at once on a cluster's image. It also plays its controller."""

    def __init__(self, cluster: Cluster) -> None:
        self.controller = self
        self._cluster = cluster

    async def submit(self, name: str, decide: Callable[[MetadataImage], Decision[Any]]) -> Any:
        return self._cluster.apply(decide(self._cluster.image))

    async def submit_parts(self, name: str, parts: Iterable[Callable[[MetadataImage], Decision[Any]]]) -> list[Any]:
        return [self._cluster.apply(decide(self._cluster.image)) for decide in parts]

    async def confirm(self) -> MetadataImage:
        return self._cluster.image

    async def change(self, decided: Awaitable[Any], response: Any, *, timeout_ms: int = 0) -> Any:
        return await decided

    async def answer(self, decided: Awaitable[Any], response: Any) -> Any:
        return await decided

    async def read(self, describe: Callable[[MetadataImage], Any], response: Any) -> Any:
        return describe(self._cluster.image)


def topics_of(cluster: Cluster) -> TopicsRpcs:
    gateway: Any = Gateway(cluster)
    mutations = Mutations(
        MutationQuotas(WindowSpan()), policy(), lambda: cluster.image, SystemClock(), knows_callers=True
    )
    return TopicsRpcs(gateway, policy(), random.Random(1), mutations)


def create(cluster: Cluster, *names: str) -> list[tuple[str, int]]:
    request = pb.CreateTopicsRequest(
        topics=[pb.NewTopic(name=name, partition_count=1, replication_factor=1) for name in names]
    )
    answer = asyncio.run(topics_of(cluster).create_topics(request, CONTEXT))
    return [(topic.name, topic.error_code) for topic in answer.topics]


def test_a_topic_is_created_only_with_create_on_the_topic_or_the_cluster(one_broker: Cluster) -> None:
    with called_with(allow(AclOperation.CREATE, ResourceType.TOPIC, "mine")):
        assert create(one_broker, "other", "mine", "another") == [("other", DENIED), ("mine", 0), ("another", DENIED)]
    with called_with(allow(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)):
        assert create(one_broker, "other", "mine") == [("other", 0), ("mine", ErrorCode.TOPIC_ALREADY_EXISTS)]
    with called_with():
        assert create(one_broker, "mine", "missing") == [("mine", DENIED), ("missing", DENIED)]


@pytest.mark.parametrize("validate_only", [False, True])
def test_the_size_of_a_created_topic_is_shown_only_with_describe_configs(
    one_broker: Cluster, validate_only: bool
) -> None:
    topics = [pb.NewTopic(name=name, partition_count=3, replication_factor=1) for name in ("hidden", "mine", "no/name")]
    request = pb.CreateTopicsRequest(topics=topics, validate_only=validate_only)
    rights = [
        allow(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
        allow(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "mine"),
    ]
    with called_with(*rights):
        answer = asyncio.run(topics_of(one_broker).create_topics(request, CONTEXT))
    assert [(topic.partition_count, topic.replication_factor) for topic in answer.topics[:2]] == [(-1, -1), (3, 1)]
    assert answer.topics[2].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topics_are_deleted_grown_and_described_only_with_the_right_acl(one_broker: Cluster) -> None:
    assert create(one_broker, "canary", "mine") == [("canary", 0), ("mine", 0)]
    rpcs = topics_of(one_broker)
    grow = pb.CreatePartitionsRequest(
        topics=[pb.NewPartitions(topic=name, total_count=2) for name in ("canary", "mine", "missing")]
    )
    with called_with(allow(AclOperation.ALTER, ResourceType.TOPIC, "mine")):
        grown = asyncio.run(rpcs.create_partitions(grow, CONTEXT))
        every = asyncio.run(rpcs.describe_topics(pb.DescribeTopicsRequest(), CONTEXT))
        named = pb.DescribeTopicsRequest(topics=["missing", "canary", "mine"])
        some = asyncio.run(rpcs.describe_topics(named, CONTEXT))
        deleted = asyncio.run(rpcs.delete_topics(pb.DeleteTopicsRequest(topics=["canary", "mine"]), CONTEXT))
    assert [result.error_code for result in grown.results] == [DENIED, 0, DENIED]
    assert [topic.name for topic in every.topics] == ["mine"]
    assert [topic.error_code for topic in some.topics] == [DENIED, DENIED, 0]
    assert some.topics[0].error_message == some.topics[1].error_message
    assert [result.error_code for result in deleted.results] == [DENIED, DENIED]
    with called_with(allow(AclOperation.DELETE, ResourceType.TOPIC, "mine")):
        deleted = asyncio.run(rpcs.delete_topics(pb.DeleteTopicsRequest(topics=["canary", "mine"]), CONTEXT))
    assert [result.error_code for result in deleted.results] == [DENIED, 0]
    assert set(one_broker.image.topics_by_name) == {"canary"}


def delete_topics(cluster: Cluster, *names: str) -> list[int]:
    answer = asyncio.run(topics_of(cluster).delete_topics(pb.DeleteTopicsRequest(topics=names), CONTEXT))
    assert [result.name for result in answer.results] == list(names)
    return [result.error_code for result in answer.results]


def test_delete_on_the_cluster_deletes_any_topic(one_broker: Cluster) -> None:
    """Apache Kafka 4.4 does so, too."""
    assert create(one_broker, "canary") == [("canary", 0)]
    with called_with(allow(AclOperation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME)):
        assert delete_topics(one_broker, "canary", "missing") == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not one_broker.image.topics_by_name


def test_a_caller_that_may_describe_a_topic_but_not_delete_it_is_told_if_it_is_missing(one_broker: Cluster) -> None:
    """Apache Kafka 4.4 gives the same answers. A caller without a right to the topic cannot find out."""
    assert create(one_broker, "canary") == [("canary", 0)]
    with called_with(*(allow(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in ("canary", "missing"))):
        answers = delete_topics(one_broker, "missing", "canary", "secret")
    assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, DENIED, DENIED]


def test_topic_configs_need_topic_acls_and_broker_configs_need_cluster_acls(one_broker: Cluster) -> None:
    assert create(one_broker, "mine") == [("mine", 0)]
    gateway: Any = Gateway(one_broker)
    rpcs = ConfigsRpcs(gateway)
    resources = [
        pb.ConfigResource(type=CONFIG_RESOURCE_TYPE_BROKER, name="1"),
        pb.ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="mine"),
        pb.ConfigResource(type=CONFIG_RESOURCE_TYPE_TOPIC, name="missing"),
    ]
    describe = pb.DescribeConfigsRequest(
        resources=[pb.DescribeConfigsResource(resource=resource) for resource in resources]
    )
    change = pb.ConfigChange(name="retention.ms", operation=pb.CONFIG_OPERATION_SET, value="1")
    alter = pb.IncrementalAlterConfigsRequest(
        resources=[pb.AlterConfigsResource(resource=resource, changes=[change]) for resource in resources]
    )
    no_cluster = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with called_with(allow(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "mine")):
        described = asyncio.run(rpcs.describe_configs(describe, CONTEXT))
        altered = asyncio.run(rpcs.incremental_alter_configs(alter, CONTEXT))
    assert [result.error_code for result in described.results] == [no_cluster, 0, DENIED]
    assert [bool(result.configs) for result in described.results] == [False, True, False]
    assert [result.error_code for result in altered.results] == [no_cluster, 0, DENIED]
    assert one_broker.image.topic_configs("mine") == {"retention.ms": "1"}
    with called_with(allow(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)):
        described = asyncio.run(rpcs.describe_configs(describe, CONTEXT))
        altered = asyncio.run(rpcs.incremental_alter_configs(alter, CONTEXT))
    assert [result.error_code for result in described.results] == [0, DENIED, DENIED]
    assert [result.error_code for result in altered.results] == [no_cluster, DENIED, DENIED]


def test_group_configs_need_group_acls(one_broker: Cluster) -> None:
    gateway: Any = Gateway(one_broker)
    rpcs = ConfigsRpcs(gateway)
    resources = [pb.ConfigResource(type=CONFIG_RESOURCE_TYPE_GROUP, name=name) for name in ("mine", "other")]
    describe = pb.DescribeConfigsRequest(
        resources=[pb.DescribeConfigsResource(resource=resource) for resource in resources]
    )
    alter = pb.IncrementalAlterConfigsRequest(
        resources=[pb.AlterConfigsResource(resource=resource) for resource in resources]
    )

    def codes(resource_type: ResourceType, name: str) -> list[list[int]]:
        """Returns the codes of both calls, by a caller that may alter and describe the configs of the resource."""
        with called_with(allow(AclOperation.ALTER_CONFIGS, resource_type, name)):
            described = asyncio.run(rpcs.describe_configs(describe, CONTEXT))
            altered = asyncio.run(rpcs.incremental_alter_configs(alter, CONTEXT))
        return [[result.error_code for result in described.results], [result.error_code for result in altered.results]]

    no_group, no_configs = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST
    assert codes(ResourceType.GROUP, "mine") == [[no_configs, no_group]] * 2
    assert codes(ResourceType.CLUSTER, CLUSTER_NAME) == [[no_group, no_group]] * 2


def test_a_long_request_of_a_caller_without_rights_does_not_keep_the_event_loop(one_broker: Cluster) -> None:
    names = [f"t{number}" for number in range(10 * ITEMS_PER_TURN)]
    rpcs = topics_of(one_broker)

    async def turns() -> int:
        task = asyncio.create_task(rpcs.delete_topics(pb.DeleteTopicsRequest(topics=names), CONTEXT))
        count = 0
        while not task.done():
            await asyncio.sleep(0)
            count += 1
        assert [(result.name, result.error_code) for result in task.result().results] == [
            (name, DENIED) for name in names
        ]
        return count

    with called_with():
        assert asyncio.run(turns()) >= 10
