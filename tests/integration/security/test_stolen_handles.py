"""Tests that a client cannot use another client's handle, even if it knows the handle.

The handles are fetch sessions, members, producers, and the principal that a server names when it forwards a request.
The thief has rights to a topic, a group and a transactional id, but not to those of the owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
import pytest

from klamm.acls import AclOperation, ResourceType
from klamm.admin import NewTopic
from klamm.errors import ErrorCode
from klamm.records.encoder import encode_batch
from klamm_broker.kafka.api import ApiKey
from klamm_server.security.gate import FORWARDED
from tests.support.authorized_cluster import AuthorizedCluster, allow
from tests.support.canary_cluster import CANARY, CanaryCluster
from tests.support.every_rpc import Caller, Rpc, every_rpc
from tests.support.kafka_wire import KafkaWire
from tests.support.waiting import wait_until

FOR_STRANGERS = ("/klamm.v1.Server/", "/klamm.v1.Authentication/")
"""Services that do not ask who calls."""
SHARED, OWNED, GROUP, ID, THIEFS_ID = "shared", "owned", "owners", "owners", "thiefs"


@pytest.fixture(scope="module")
def cluster(canary: CanaryCluster) -> AuthorizedCluster:
    made = canary.cluster
    topic, group, transactional_id = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
    with made.admin() as admin:
        admin.create_topics([NewTopic(name, partition_count=1, replication_factor=1) for name in (SHARED, OWNED)])
        admin.create_acls(
            [
                *(allow("owner", AclOperation.ALL, topic, name) for name in (SHARED, OWNED)),
                allow("owner", AclOperation.ALL, group, GROUP),
                allow("owner", AclOperation.ALL, transactional_id, ID),
                allow("thief", AclOperation.ALL, topic, SHARED),
                allow("thief", AclOperation.ALL, group, "thiefs"),
                allow("thief", AclOperation.ALL, transactional_id, THIEFS_ID),
            ]
        )
    for who in ("owner", "thief"):
        with made.wire(who) as wire:
            wait_until(lambda: may_read(wire, SHARED), made.logs)
    return made


def may_read(wire: KafkaWire, topic: str) -> bool:
    """Returns True if the broker knows the topic and the right to it."""
    return not fetch(wire, 0, -1, topic).responses[0].partitions[0].error_code


@pytest.fixture
def owner(cluster: AuthorizedCluster) -> Iterator[KafkaWire]:
    with cluster.wire("owner") as wire:
        yield wire


@pytest.fixture
def thief(cluster: AuthorizedCluster) -> Iterator[KafkaWire]:
    with cluster.wire("thief") as wire:
        yield wire


# Fetch sessions


def fetch(wire: KafkaWire, session_id: int, epoch: int, *topics: str) -> Any:
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
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": [{"topic": topic, "partitions": [partition]} for topic in topics],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return wire.ask(ApiKey.FETCH, 12, asked)


def test_a_fetch_session_cannot_be_used_by_another_user(owner: KafkaWire, thief: KafkaWire) -> None:
    wait_until(lambda: may_read(owner, OWNED))
    begun = fetch(owner, 0, 0, SHARED, OWNED)
    assert begun.session_id
    for epoch in (1, 2):
        stolen = fetch(thief, begun.session_id, epoch)
        assert stolen.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not stolen.responses
    # The thief cannot end the session either.
    fetch(thief, begun.session_id, -1, SHARED)
    assert fetch(owner, begun.session_id, 1).error_code == ErrorCode.NONE


# Members


def test_a_group_member_id_cannot_be_used_by_another_user(owner: KafkaWire, thief: KafkaWire) -> None:
    def joined() -> Any:
        asked = {
            "group_id": GROUP,
            "session_timeout": 60_000,
            "rebalance_timeout": 60_000,
            "member_id": "",
            "group_instance_id": "static",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        }
        answer = owner.ask(ApiKey.JOIN_GROUP, 9, asked)
        return None if answer.error_code else answer

    owner.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [GROUP]})
    member = wait_until(joined)
    of_member = {
        "group_id": GROUP,
        "member_id": member.member_id,
        "generation_id": member.generation_id,
        "group_instance_id": "static",
    }
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }
    leaver = {"member_id": member.member_id, "group_instance_id": "static", "reason": None}
    heartbeat = thief.ask(ApiKey.HEARTBEAT, 4, of_member)
    synced = thief.ask(
        ApiKey.SYNC_GROUP, 5, {**of_member, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    )
    left = thief.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": GROUP, "members": [leaver]})
    committed = thief.ask(
        ApiKey.OFFSET_COMMIT,
        9,
        {
            **of_member,
            "generation_id_or_member_epoch": member.generation_id,
            "topics": [{"name": SHARED, "partitions": [partition]}],
        },
    )
    codes = {
        heartbeat.error_code,
        synced.error_code,
        left.error_code,
        committed.topics[0].partitions[0].error_code,
    }
    assert codes == {ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert owner.ask(ApiKey.HEARTBEAT, 4, of_member).error_code == ErrorCode.NONE


# Producers


class ProducerHandle(NamedTuple):
    """The identity of a transactional producer."""

    producer_id: int
    epoch: int


def producer_of(wire: KafkaWire, transactional_id: str) -> ProducerHandle:
    asked = {
        "transactional_id": transactional_id,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    wire.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [transactional_id]})

    def begun() -> Any:
        answer = wire.ask(ApiKey.INIT_PRODUCER_ID, 5, asked)
        return None if answer.error_code else answer

    found = wait_until(begun)
    return ProducerHandle(found.producer_id, found.producer_epoch)


def produce(wire: KafkaWire, transactional_id: str | None, of: ProducerHandle, sequence: int, value: bytes) -> int:
    """Produces in the transaction of that producer."""
    records = encode_batch(
        [(1, None, value, ())],
        producer_id=of.producer_id,
        producer_epoch=of.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    part = {"index": 0, "records": bytes(records)}
    asked = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 5_000,
        "topic_data": [{"name": SHARED, "partition_data": [part]}],
    }
    (answer,) = wire.ask(ApiKey.PRODUCE, 12, asked).responses
    return int(answer.partition_responses[0].error_code)


@pytest.mark.parametrize("transactional_id", [None, ID, THIEFS_ID], ids=["none", "owner's", "thief's"])
def test_a_user_cannot_write_into_the_transaction_of_another_user(
    owner: KafkaWire, thief: KafkaWire, transactional_id: str | None
) -> None:
    handle = producer_of(owner, ID)
    producer_of(thief, THIEFS_ID)
    # The thief tries before the owner has written there, and after, when the broker considers the transaction open.
    assert produce(thief, transactional_id, handle, 0, b"stolen") != ErrorCode.NONE
    assert produce(owner, ID, handle, 0, b"own") == ErrorCode.NONE
    assert produce(thief, transactional_id, handle, 1, b"stolen") != ErrorCode.NONE
    assert produce(owner, ID, handle, 1, b"own") == ErrorCode.NONE
    ended = end(owner, ID, handle)
    assert ended == ErrorCode.NONE


def test_a_user_cannot_end_or_begin_the_transaction_of_another_user(owner: KafkaWire, thief: KafkaWire) -> None:
    handle = producer_of(owner, ID)
    assert produce(owner, ID, handle, 0, b"own") == ErrorCode.NONE
    assert end(thief, ID, handle) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer_of(thief, THIEFS_ID)
    assert end(thief, THIEFS_ID, handle) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    fenced = {"transactional_id": ID, "transaction_timeout": 1_000, "producer_id": -1, "producer_epoch": -1}
    code = thief.ask(ApiKey.INIT_PRODUCER_ID, 5, fenced).error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end(owner, ID, handle) == ErrorCode.NONE


def end(wire: KafkaWire, transactional_id: str, of: ProducerHandle) -> int:
    asked = {
        "transactional_id": transactional_id,
        "producer_id": of.producer_id,
        "producer_epoch": of.epoch,
        "committed": True,
    }
    return int(wire.ask(ApiKey.END_TXN, 5, asked).error_code)


# Principals


def test_a_client_cannot_forward_a_request_for_any_principal(cluster: AuthorizedCluster) -> None:
    """A client may not even name itself."""
    metadata = [(FORWARDED, b"127.0.0.1\n" + principal) for principal in (b"User:admin", b"User:thief")]
    stores = cluster.stores("thief")
    taken: list[str] = []
    for address in (cluster.controller_grpc, cluster.grpc, cluster.coordinator_grpc):
        for named in metadata:
            with Caller(address, stores, [named]) as caller:
                taken += [f"{rpc.path} at {address}" for rpc in every_rpc() if not _is_refused(caller, rpc)]
    taken = [each for each in taken if not each.startswith(FOR_STRANGERS)]
    assert not taken, taken


def _is_refused(caller: Caller, rpc: Rpc) -> bool:
    try:
        caller.call(rpc, rpc.request(CANARY))
    except grpc.RpcError as error:
        return error.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)
    return False
