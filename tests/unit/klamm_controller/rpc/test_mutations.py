"""Tests the quota cost of topic changes, through the calls of Admin."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.model import GROUP_METADATA_TOPIC
from klamm.wire.quotas import entity_parts
from klamm.wire.v1 import controller_pb2 as pb
from klamm.wire.v1.metadata_pb2 import ClientQuotaRecord, MetadataRecord
from klamm_controller.rpc.mutations import Mutations
from klamm_controller.rpc.topics import TopicsRpcs
from klamm_server.metadata.replay import replay
from klamm_server.security.peer_principals import LOGGED_IN
from klamm_server.security.quotas.mutation_quotas import MutationQuotas
from klamm_server.security.quotas.rate_window import WindowSpan
from tests.support.callers import allow, called_with
from tests.unit.klamm_controller.conftest import Cluster, policy
from tests.unit.klamm_controller.rpc.test_rights import Gateway

CONTEXT: Any = None
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class StillClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_ms = 5_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class World:
    """A cluster in which anonymous clients may change one partition a second, and eleven at once."""

    def __init__(self, cluster: Cluster, *, knows_callers: bool = False) -> None:
        self.cluster = cluster
        self.clock = StillClock()
        quota = ClientQuotaRecord(entity=entity_parts((("user", None),)), key="controller_mutation_rate", value=1)
        image = cluster.image
        cluster.image = replay(image, [MetadataRecord(client_quota=quota)], image.end_index + 1)
        gateway: Any = Gateway(cluster)
        mutations = Mutations(
            MutationQuotas(WindowSpan()), policy(), lambda: cluster.image, self.clock, knows_callers=knows_callers
        )
        self.topics = TopicsRpcs(gateway, policy(), random.Random(1), mutations)

    def create(self, *names: str, partitions: int = 10, **fields: Any) -> tuple[list[int], int]:
        """Creates topics. Returns the error codes and the throttle time."""
        topics = [pb.NewTopic(name=name, partition_count=partitions, replication_factor=1) for name in names]
        answer = asyncio.run(self.topics.create_topics(pb.CreateTopicsRequest(topics=topics, **fields), CONTEXT))
        assert [topic.name for topic in answer.topics] == list(names)
        return [topic.error_code for topic in answer.topics], answer.throttle_time_ms

    def delete(self, *names: str) -> tuple[list[int], int]:
        answer = asyncio.run(self.topics.delete_topics(pb.DeleteTopicsRequest(topics=names), CONTEXT))
        return [result.error_code for result in answer.results], answer.throttle_time_ms

    def grow(self, name: str, total: int) -> tuple[list[int], int]:
        topics = [pb.NewPartitions(topic=name, total_count=total)]
        answer = asyncio.run(self.topics.create_partitions(pb.CreatePartitionsRequest(topics=topics), CONTEXT))
        return [result.error_code for result in answer.results], answer.throttle_time_ms


def test_topics_after_the_one_that_exhausted_the_quota_are_refused(one_broker: Cluster) -> None:
    world = World(one_broker)
    assert world.create("a", "b", "c") == ([0, 0, EXCEEDED], 9_000)
    assert set(world.cluster.image.topics_by_name) == {"a", "b"}
    assert world.delete("a") == ([EXCEEDED], 9_000)
    assert world.grow("a", 12) == ([EXCEEDED], 9_000)
    world.clock.now_ms += 9_000
    assert world.delete("a") == ([0], 0)
    assert world.grow("b", 11) == ([EXCEEDED], 10_000), "a deletion costs the topic's partitions"


def test_requests_that_change_nothing_cost_no_quota(one_broker: Cluster) -> None:
    world = World(one_broker)
    for _ in range(3):
        assert world.create("checked", validate_only=True) == ([0], 0)
    assert world.create("a") == ([0], 0)
    for _ in range(3):
        assert world.create("a") == ([ErrorCode.TOPIC_ALREADY_EXISTS], 0)
        assert world.delete("unknown") == ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], 0)
        assert world.grow("unknown", 100) == ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], 0)
        assert world.grow("a", 5) == ([ErrorCode.INVALID_PARTITIONS], 0)
    assert world.grow("a", 12) == ([0], 0)
    assert world.create("b") == ([EXCEEDED], 1_000)


def test_servers_have_no_controller_mutation_quota(one_broker: Cluster) -> None:
    world = World(one_broker, knows_callers=True)
    assert world.create("a", "b", "c") == ([0, 0, 0], 0)
    with called_with(allow(AclOperation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)):
        assert world.create("d", "e", "f") == ([0, 0, EXCEEDED], 9_000)


@pytest.mark.parametrize("knows_callers", [True, False])
def test_a_user_that_has_logged_in_has_a_quota_without_a_session(one_broker: Cluster, knows_callers: bool) -> None:
    world = World(one_broker, knows_callers=knows_callers)
    for user in ("User:alice", "User:bob"):
        token = LOGGED_IN.set(user)
        created, _ = world.create(*(f"{user[5:]}-{number}" for number in range(3)))
        LOGGED_IN.reset(token)
        assert created == [0, 0, EXCEEDED]


def test_internal_topics_cost_no_quota(one_broker: Cluster) -> None:
    world = World(one_broker)
    world.create(GROUP_METADATA_TOPIC, partitions=50)
    assert world.create("a") == ([0], 0)
