"""Tests that a revoked right ends at once, also for clients in use: producers, waiting consumers, members of groups.

Both protocols are tested. `pytest -s` prints the delay. The limit is a second if nothing else runs.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from klamm import Consumer, Producer
from klamm.acls import AclBinding, AclBindingFilter, AclOperation, ResourceType
from klamm.admin import NewTopic
from klamm.errors import BrokerError, ErrorCode
from klamm_broker.kafka.api import ApiKey
from tests.support.authorized_cluster import AuthorizedCluster, allow
from tests.support.canary_cluster import CanaryCluster
from tests.support.every_rpc import Caller, every_rpc
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import patience, wait_until

numbers = itertools.count()


class Tenant:
    """A user with rights to a topic and a group of its own."""

    def __init__(self, cluster: AuthorizedCluster) -> None:
        self.cluster = cluster
        self.name = f"tenant-{next(numbers)}"
        topic, group = (ResourceType.TOPIC, self.name), (ResourceType.GROUP, self.name)
        self.writes = self._allow(AclOperation.WRITE, *topic)
        self.reads = self._allow(AclOperation.READ, *topic)
        self.describes = self._allow(AclOperation.DESCRIBE, *topic)
        self.joins = self._allow(AclOperation.READ, *group)
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(self.name, partition_count=1, replication_factor=1)])
        with self.wire() as wire:
            wait_until(lambda: fetch(wire, self.name).error_code == ErrorCode.NONE, cluster.logs)

    def _allow(self, operation: AclOperation, resource_type: ResourceType, name: str) -> AclBinding:
        entry = allow(self.name, operation, resource_type, name)
        with self.cluster.admin() as admin:
            admin.create_acls([entry])
        return entry

    def revoke(self, *entries: AclBinding) -> float:
        """Revokes the entries. Returns the monotonic time of the answer in seconds."""
        with self.cluster.admin() as admin:
            admin.delete_acls([AclBindingFilter(*entry) for entry in entries])
            return time.monotonic()

    def wire(self) -> KafkaWire:
        return self.cluster.wire(self.name)

    def ended(self, what: str, since_s: float, ask: Callable[[], ErrorCode | int], code: ErrorCode) -> None:
        """Waits until `ask` returns the code, and prints how long this took since the revocation."""
        wait_until(lambda: ask() == code, self.cluster.logs)
        print(f"{what}: gone after {time.monotonic() - since_s:.2f} s")


@pytest.fixture
def tenant(canary: CanaryCluster) -> Tenant:
    return Tenant(canary.cluster)


def fetch(wire: KafkaWire, topic: str, *, max_wait_ms: int = 0) -> Any:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
    }
    asked = {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": 1_000_000,
        "max_bytes": 1_000_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    (answer,) = wire.ask(ApiKey.FETCH, 12, asked).responses
    return answer.partitions[0]


def test_a_waiting_kafka_fetch_is_refused_after_a_revocation(tenant: Tenant) -> None:
    with tenant.wire() as wire:
        since_s = tenant.revoke(tenant.reads, tenant.describes)
        tenant.ended(
            "Fetch", since_s, lambda: fetch(wire, tenant.name).error_code, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        refused = fetch(wire, tenant.name, max_wait_ms=500)
        assert not refused.records
        assert refused.high_watermark == -1


def test_a_waiting_klamm_consumer_is_refused_after_a_revocation(tenant: Tenant) -> None:
    settings = {**tenant.cluster.klamm(tenant.name), "group.id": tenant.name, "auto.offset.reset": "earliest"}
    with Producer(tenant.cluster.klamm(tenant.name)) as producer, Consumer(settings) as consumer:
        producer.send(tenant.name, b"v").result(patience())
        consumer.subscribe([tenant.name])
        wait_until(lambda: consumer.poll(timeout_ms=200))
        since_s = tenant.revoke(tenant.reads)

        def code() -> ErrorCode:
            try:
                consumer.poll(timeout_ms=200)
            except BrokerError as error:
                return error.code
            return ErrorCode.NONE

        tenant.ended("consumer", since_s, code, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_a_klamm_producer_is_refused_after_a_revocation(tenant: Tenant) -> None:
    with Producer({**tenant.cluster.klamm(tenant.name), "linger.ms": "0"}) as producer:

        def code() -> ErrorCode:
            try:
                producer.send(tenant.name, b"v").result(patience())
            except BrokerError as error:
                return error.code
            return ErrorCode.NONE

        assert code() is ErrorCode.NONE
        since_s = tenant.revoke(tenant.writes)
        tenant.ended("producer", since_s, code, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def heartbeat(wire: KafkaWire, tenant: Tenant, member_id: str, epoch: int) -> Any:
    """Sends a heartbeat of a member that subscribes to all topics that it may see."""
    asked = {
        "group_id": tenant.name,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": None if epoch else [],
        "subscribed_topic_regex": None if epoch else ".*",
        "server_assignor": None,
        "topic_partitions": None if epoch else [],
    }
    return wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)


class Member:
    """A member of a KIP-848 group that adopts each assignment it receives."""

    def __init__(self, wire: KafkaWire, tenant: Tenant) -> None:
        self._wire = wire
        self._tenant = tenant
        self._member_id = str(uuid.uuid4())
        self._epoch = 0
        self.topics: set[uuid.UUID] | None = None

    def beat(self) -> int:
        """Sends a heartbeat. Returns the answer's error code."""
        answer = heartbeat(self._wire, self._tenant, self._member_id, self._epoch)
        if not answer.error_code:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self.topics = {topic_partition.topic_id for topic_partition in answer.assignment.topic_partitions}
        return int(answer.error_code)


def test_a_regex_subscription_loses_the_topic_after_a_revocation(tenant: Tenant) -> None:
    """Kafka's groups of KIP-848 resolve the expression again after a metadata change, but not within ten seconds."""
    with tenant.wire() as wire:
        wire.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [tenant.name]})
        member = Member(wire, tenant)
        wait_until(lambda: member.beat() == ErrorCode.NONE and member.topics, tenant.cluster.logs)
        assert member.topics is not None
        assert len(member.topics) == 1, "other tenants' topics are not its to see"
        tenant.revoke(tenant.reads, tenant.writes, tenant.describes)
        wait_until(lambda: member.beat() == ErrorCode.NONE and not member.topics, tenant.cluster.logs)


def test_a_group_member_is_refused_after_a_revocation_of_its_group(tenant: Tenant) -> None:
    with tenant.wire() as wire:
        wire.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [tenant.name]})
        member = Member(wire, tenant)
        wait_until(lambda: member.beat() == ErrorCode.NONE, tenant.cluster.logs)
        since_s = tenant.revoke(tenant.joins)
        tenant.ended("member", since_s, member.beat, ErrorCode.GROUP_AUTHORIZATION_FAILED)


def test_a_metadata_stream_ends_after_a_revocation_of_cluster_action(canary: CanaryCluster) -> None:
    """The metadata includes users' credentials."""
    cluster = canary.cluster
    serves = allow("former", AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    (watch,) = (rpc for rpc in every_rpc() if rpc.path.endswith("/WatchMetadata"))
    with cluster.admin() as admin, Caller(cluster.controller_grpc, cluster.stores("former")) as former:
        admin.create_acls([serves])
        stream = former.stream(watch, b"")
        next(stream)
        admin.delete_acls([AclBindingFilter(*serves)])
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
