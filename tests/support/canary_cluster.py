"""A cluster in which all clients are known by certificate. It has a topic, groups, a transaction, a user and an access
control entry. A client without a right to them must not learn their names."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from klamm.acls import AclOperation, ResourceType
from klamm.admin import NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from klamm.errors import ErrorCode
from klamm.records.encoder import encode_batch
from klamm.secret import Secret
from klamm_broker.kafka.api import ApiKey
from tests.support.authorized_cluster import AuthorizedCluster, allow
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import wait_until

CANARY: Final = "canary-7f3a91"
_GROUP_KEY, _TRANSACTION_KEY = 0, 1


class CanaryCluster:
    """The cluster and its content. All names are `CANARY` or begin with it."""

    def __init__(self, cluster: AuthorizedCluster, ids: list[str]) -> None:
        self.cluster = cluster
        self.ids = ids
        """The ids of the topic and of members, as texts."""


def filled(made: AuthorizedCluster) -> CanaryCluster:
    """Creates all content in the cluster, and returns the cluster with its ids."""
    with made.admin() as admin:
        topic_id = admin.create_topics([NewTopic(CANARY, partition_count=1, replication_factor=1)])[CANARY].topic_id
        admin.create_acls([allow(CANARY, AclOperation.READ, ResourceType.TOPIC, CANARY)])
        mechanism = ScramMechanism.of_name("SCRAM-SHA-512")
        assert mechanism is not None
        info = ScramCredentialInfo(mechanism, 4_096)
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(CANARY, info, Secret(CANARY))])
    with made.wire("admin") as wire:
        member_id = fill(wire, made.logs)
    return CanaryCluster(made, [str(topic_id), member_id])


def fill(wire: KafkaWire, logs: Callable[[], str] = str, *, group_id: str = CANARY) -> str:
    """Creates a transactional id, a record, the group with a member, and another group with an offset, when the topic
    exists. Returns the id of the member."""
    for key_type in (_GROUP_KEY, _TRANSACTION_KEY):
        wait_until(lambda key_type=key_type: _is_coordinated(wire, key_type), logs)  # type: ignore[misc]
    wait_until(lambda: not init_producer(wire, CANARY, timeout_ms=60_000).error_code, logs)
    _produce(wire)
    member_id = str(uuid.uuid4())
    wait_until(lambda: _joined(wire, group_id, member_id), logs)
    _commit(wire, f"{group_id}-classic")
    return member_id


def init_producer(wire: KafkaWire, transactional_id: str, *, timeout_ms: int) -> Any:
    """Asks for the producer id of a transactional id, and returns the answer."""
    asked = {
        "transactional_id": transactional_id,
        "transaction_timeout": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return wire.ask(ApiKey.INIT_PRODUCER_ID, 5, asked)


def _is_coordinated(wire: KafkaWire, key_type: int) -> bool:
    asked = {"key_type": key_type, "coordinator_keys": [CANARY]}
    (found,) = wire.ask(ApiKey.FIND_COORDINATOR, 4, asked).coordinators
    return not found.error_code


def _produce(wire: KafkaWire) -> None:
    part = {"index": 0, "records": bytes(encode_batch([(1, b"k", CANARY.encode(), ())]))}
    topics = [{"name": CANARY, "partition_data": [part]}]
    asked = {"transactional_id": None, "acks": -1, "timeout": 5_000, "topic_data": topics}

    def code() -> int:
        (answer,) = wire.ask(ApiKey.PRODUCE, 12, asked).responses
        return int(answer.partition_responses[0].error_code)

    wait_until(lambda: code() == ErrorCode.NONE)


def _joined(wire: KafkaWire, group_id: str, member_id: str) -> bool:
    return not _heartbeat(wire, group_id, member_id).error_code


def _heartbeat(wire: KafkaWire, group_id: str, member_id: str) -> Any:
    asked = {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 6_000_000,
        "subscribed_topic_names": [CANARY],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    return wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)


def _commit(wire: KafkaWire, group_id: str) -> None:
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }
    asked = {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": CANARY, "partitions": [partition]}],
    }

    def code() -> int:
        (topic,) = wire.ask(ApiKey.OFFSET_COMMIT, 9, asked).topics
        return int(topic.partitions[0].error_code)

    wait_until(lambda: code() == ErrorCode.NONE)
