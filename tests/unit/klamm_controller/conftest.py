"""Provides a cluster that exists only as an image. Decisions are replayed at once, as if they committed."""

from __future__ import annotations

import random
from typing import TypeVar

import pytest

from klamm.model import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from klamm.wire.v1.common_pb2 import Endpoint
from klamm.wire.v1.controller_pb2 import (
    AlteredPartition,
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    CoordinatorHeartbeatRequest,
    CreatedTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IsrChange,
    IsrMember,
    NewTopic,
    RegisterBrokerRequest,
    RegisterCoordinatorRequest,
    ReplicaAssignment,
    ReplicaLogEnd,
    ReportReplicaLogsRequest,
)
from klamm.wire.v1.metadata_pb2 import ClusterRecord, MetadataRecord
from klamm_controller.metadata.alter_partition import handle_alter_partition
from klamm_controller.metadata.brokers import handle_broker_heartbeat
from klamm_controller.metadata.coordinators import handle_coordinator_heartbeat, handle_register_coordinator
from klamm_controller.metadata.decision import Decision
from klamm_controller.metadata.leader_election import unclean_elections
from klamm_controller.metadata.policy import InternalTopicPolicy, TopicPolicy
from klamm_controller.metadata.replica_logs import ReplicaLogs
from klamm_controller.metadata.topics import handle_delete_topics
from klamm_controller.metadata.unclean_recovery import handle_replica_logs
from klamm_server.metadata.entities import PartitionImage, TopicImage
from klamm_server.metadata.image import MetadataImage
from klamm_server.metadata.replay import replay
from tests.support.whole_decisions import handle_create_topics, handle_register_broker

T = TypeVar("T")
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def policy(**changes: object) -> TopicPolicy:
    values: dict[str, object] = {
        "num_partitions": 1,
        "default_replication_factor": 1,
        "partitions_per_request_max": 100,
        "delete_topic_enable": True,
        "internal_topics": {
            GROUP_METADATA_TOPIC: InternalTopicPolicy(partition_count=6, replication_factor=1),
            TRANSACTION_STATE_TOPIC: InternalTopicPolicy(partition_count=4, replication_factor=1),
        },
    }
    return TopicPolicy(**{**values, **changes})


class Cluster:
    """The image, and short ways to change it through the real handlers."""

    def __init__(self) -> None:
        self.image = MetadataImage.empty()
        self.rng = random.Random(0)
        self.logs = ReplicaLogs()
        self.policy = policy()
        self.unclean: list[tuple[str, int, int]] = []
        """(topic, partition, leader) of the elections that operators were told of."""
        self.replay([MetadataRecord(cluster=ClusterRecord(cluster_id=CLUSTER_ID))])

    def replay(self, records: list[MetadataRecord] | tuple[MetadataRecord, ...]) -> None:
        told = unclean_elections(self.image, records)
        self.unclean += [(topic.name, partition.partition, leader) for topic, partition, leader in told]
        self.image = replay(self.image, records, self.image.end_index + len(records))

    def apply(self, decision: Decision[T]) -> T:
        self.replay(decision.records)
        while decision.sweep is not None and not decision.sweep.is_done:
            self.replay(decision.sweep.next_changes(self.image))
        return decision.reply

    def broker_request(self, broker_id: int, /, life: int = 0, **changes: object) -> RegisterBrokerRequest:
        values: dict[str, object] = {
            "broker_id": broker_id,
            "incarnation_id": bytes([broker_id, life]).rjust(16, b"\0"),
            "endpoint": Endpoint(host="localhost", port=9_000 + broker_id),
            "log_dir_ids": [bytes([broker_id]).rjust(16, b"d")],
        }
        return RegisterBrokerRequest(**{**values, **changes})

    def register_broker(self, broker_id: int, life: int = 0, *, live: bool = False, **changes: object) -> int:
        request = self.broker_request(broker_id, life, **changes)
        reply = self.apply(handle_register_broker(request, self.image, session_live=live))
        assert not reply.error_code, reply
        return reply.epoch

    def add_broker(self, broker_id: int, **changes: object) -> None:
        """Registers and unfences the broker."""
        self.register_broker(broker_id, **changes)
        self.beat(broker_id)
        assert not self.image.brokers[broker_id].fenced

    def beat(self, broker_id: int, **changes: object) -> None:
        self.apply(handle_broker_heartbeat(self.heartbeat(broker_id, **changes), self.image))

    def heartbeat(self, broker_id: int, /, **changes: object) -> BrokerHeartbeatRequest:
        values: dict[str, object] = {
            "broker_id": broker_id,
            "broker_epoch": self.image.brokers[broker_id].broker_epoch,
            "metadata_end_index": self.image.end_index,
        }
        return BrokerHeartbeatRequest(**{**values, **changes})

    def coordinator_request(
        self, coordinator_id: int, /, life: int = 0, **changes: object
    ) -> RegisterCoordinatorRequest:
        values: dict[str, object] = {
            "coordinator_id": coordinator_id,
            "incarnation_id": bytes([coordinator_id, life]).rjust(16, b"c"),
            "endpoint": Endpoint(host="localhost", port=9_500 + coordinator_id),
        }
        return RegisterCoordinatorRequest(**{**values, **changes})

    def register_coordinator(self, coordinator_id: int, life: int = 0, *, live: bool = False) -> int:
        request = self.coordinator_request(coordinator_id, life)
        reply = self.apply(handle_register_coordinator(request, self.image, session_live=live))
        assert not reply.error_code, reply
        return reply.epoch

    def add_coordinator(self, coordinator_id: int, life: int = 0) -> None:
        """Registers and unfences the coordinator."""
        self.register_coordinator(coordinator_id, life)
        beat = self.coordinator_heartbeat(coordinator_id)
        assert not self.apply(handle_coordinator_heartbeat(beat, self.image)).fenced

    def coordinator_heartbeat(self, coordinator_id: int, /, **changes: object) -> CoordinatorHeartbeatRequest:
        values: dict[str, object] = {
            "coordinator_id": coordinator_id,
            "coordinator_epoch": self.image.coordinators[coordinator_id].coordinator_epoch,
            "metadata_end_index": self.image.end_index,
        }
        return CoordinatorHeartbeatRequest(**{**values, **changes})

    def create(self, *topics: NewTopic, validate_only: bool = False) -> list[CreatedTopic]:
        request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return list(self.apply(handle_create_topics(request, self.image, self.policy, self.rng)).topics)

    def create_one(self, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> TopicImage:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name=name, partition_count=partitions, replication_factor=replicas, configs=dotted)
        (created,) = self.create(topic)
        assert not created.error_code, created
        return self.topic(name)

    def create_by_hand(self, name: str, *replicas: tuple[int, ...], **configs: str) -> TopicImage:
        """Creates a topic with these replicas of each partition."""
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        assignments = [ReplicaAssignment(partition=number, broker_ids=ids) for number, ids in enumerate(replicas)]
        (created,) = self.create(
            NewTopic(name=name, partition_count=-1, replication_factor=-1, assignments=assignments, configs=dotted)
        )
        assert not created.error_code, created
        return self.topic(name)

    def bring_into_sync(self, broker_id: int, *names: str) -> AlteredPartition | None:
        """Adds the broker to every in-sync set of its partitions, of these topics or all. Returns the last answer."""
        answer = None
        for name in names or list(self.image.topics_by_name):
            topic = self.topic(name)
            for partition in topic.partitions:
                if broker_id in partition.isr or broker_id not in partition.replicas or partition.leader < 0:
                    continue
                members = [
                    IsrMember(broker_id=each, broker_epoch=self.image.brokers[each].broker_epoch)
                    for each in (*partition.isr, broker_id)
                ]
                change = IsrChange(
                    topic_id=topic.topic_id.bytes,
                    partition=partition.partition,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr=members,
                )
                leader = self.image.brokers[partition.leader]
                request = AlterPartitionRequest(
                    broker_id=leader.broker_id, broker_epoch=leader.broker_epoch, partitions=[change]
                )
                (answer,) = self.apply(handle_alter_partition(request, self.image)).partitions
        return answer

    def report_log(self, broker_id: int, last_epoch: int, log_end_offset: int, name: str = "a", **changes: int) -> int:
        """Reports the end of the broker's log of partition 0. Returns the partition's leader afterwards."""
        request = self.log_report(broker_id, last_epoch, log_end_offset, name, **changes)
        self.apply(handle_replica_logs(request, self.image, self.logs))
        return self.partition(name).leader

    def log_report(
        self, broker_id: int, last_epoch: int, log_end_offset: int, name: str = "a", **changes: int
    ) -> ReportReplicaLogsRequest:
        topic = self.topic(name)
        values = {
            "leader_epoch": topic.partitions[0].leader_epoch,
            "broker_epoch": self.image.brokers[broker_id].broker_epoch,
            **changes,
        }
        end = ReplicaLogEnd(
            topic_id=topic.topic_id.bytes,
            leader_epoch=values["leader_epoch"],
            last_epoch=last_epoch,
            log_end_offset=log_end_offset,
        )
        return ReportReplicaLogsRequest(broker_id=broker_id, broker_epoch=values["broker_epoch"], logs=[end])

    def remove(self, name: str) -> None:
        """Deletes a topic."""
        self.apply(handle_delete_topics(DeleteTopicsRequest(topics=[name]), self.image, self.policy))

    def topic(self, name: str) -> TopicImage:
        return self.image.topics_by_name[name]

    def partition(self, name: str, number: int = 0) -> PartitionImage:
        return self.topic(name).partitions[number]

    def shard_owners(self, topic: str) -> list[int]:
        count = len(self.topic(topic).partitions)
        return [self.image.shards[topic, shard].coordinator_id for shard in range(count)]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def one_broker(cluster: Cluster) -> Cluster:
    """Returns a cluster with the active broker 1."""
    cluster.add_broker(1)
    return cluster


@pytest.fixture
def three_brokers(cluster: Cluster) -> Cluster:
    """Returns a cluster with the active brokers 1 to 3."""
    for broker_id in (1, 2, 3):
        cluster.add_broker(broker_id)
    return cluster
