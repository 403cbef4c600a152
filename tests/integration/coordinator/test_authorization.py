"""Tests a coordinator with an authorizer, and a caller without access control entries.

The caller must not learn which groups and transactions exist.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from klamm.acls import (
    ANONYMOUS,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from klamm.errors import ErrorCode
from klamm.wire.acls import binding_message, filter_message
from klamm.wire.v1 import common_pb2 as common
from klamm.wire.v1 import controller_pb2 as c
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.broker_pb2 import COORDINATOR_KEY_TYPE_TRANSACTION
from klamm.wire.v1.coordinator_rpc import COORDINATOR
from klamm_server.security.acls.authorizer import StandardAuthorizer
from tests.support.coordinator_cluster import NOT_YET, Cluster, cluster, error_of, eventually

CANARY, MISSING = "canary", "never-there"
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ALL_TYPES = (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.TOPIC)


def entry(operation: AclOperation, resource_type: ResourceType, name: str = "*") -> AclBinding:
    return AclBinding(resource_type, name, PatternType.LITERAL, ANONYMOUS, "*", operation, AclPermissionType.ALLOW)


async def allow(running: Cluster, *acls: AclBinding) -> None:
    """Replaces all access control entries by these, and waits until the coordinator knows them."""
    everything = c.DeleteAclsRequest(filters=[filter_message(AclBindingFilter())], timeout_ms=5_000)
    assert not (await running.admin.delete_acls(everything)).error_code
    created = await running.admin.create_acls(
        c.CreateAclsRequest(creations=map(binding_message, acls), timeout_ms=5_000)
    )
    assert not created.error_code
    coordinator = running.coordinators[1].server

    async def knows() -> bool | None:
        return set(coordinator._link.image.acls.by_id.values()) == set(acls) or None

    await eventually(knows)


def commit(name: str, *topics: str) -> pb.OffsetCommitRequest:
    offsets = [pb.GroupOffset(topic=topic, offset=17, leader_epoch=-1, metadata=CANARY) for topic in topics]
    return pb.OffsetCommitRequest(group_id=name, generation_id=-1, offsets=offsets)


def requests(name: str) -> dict[str, tuple[Any, ErrorCode]]:
    """Returns each call about a group, transactional id or query of that name, with the error code of its refusal."""
    partitions = [common.TopicPartitions(topic="t", partitions=[0])]
    ledger = pb.LedgerName(sink="sink", query_id=name)
    return {
        "join_group": (
            pb.JoinGroupRequest(
                group_id=name,
                session_timeout_ms=6_000,
                protocol_type="consumer",
                protocols=[pb.GroupProtocol(name="range")],
            ),
            GROUP,
        ),
        "sync_group": (pb.SyncGroupRequest(group_id=name), GROUP),
        "heartbeat": (pb.HeartbeatRequest(group_id=name), GROUP),
        "leave_group": (pb.LeaveGroupRequest(group_id=name), GROUP),
        "consumer_group_heartbeat": (pb.ConsumerGroupHeartbeatRequest(group_id=name), GROUP),
        "consumer_group_describe": (pb.ConsumerGroupDescribeRequest(group_ids=[name]), GROUP),
        "describe_groups": (pb.DescribeGroupsRequest(group_ids=[name]), GROUP),
        "describe_group_lag": (pb.DescribeGroupLagRequest(group_ids=[name]), GROUP),
        "forget_lost_records": (pb.ForgetLostRecordsRequest(group_id=name), GROUP),
        "delete_groups": (pb.DeleteGroupsRequest(group_ids=[name]), GROUP),
        "offset_commit": (commit(name, "t"), GROUP),
        "offset_fetch": (pb.OffsetFetchRequest(group_id=name, topics=partitions), GROUP),
        "offset_delete": (pb.OffsetDeleteRequest(group_id=name, topics=partitions), GROUP),
        "txn_offset_commit": (
            pb.TxnOffsetCommitRequest(
                group_id=name, transactional_id=name, offsets=[pb.GroupOffset(topic="t", offset=1)]
            ),
            TRANSACTION,
        ),
        "init_producer_id": (
            pb.InitTransactionalIdRequest(transactional_id=name, transaction_timeout_ms=1_000, producer_id=-1),
            TRANSACTION,
        ),
        "add_partitions_to_txn": (
            pb.AddPartitionsToTxnRequest(transactional_id=name, topics=partitions),
            TRANSACTION,
        ),
        "end_txn": (pb.EndTxnRequest(transactional_id=name), TRANSACTION),
        "describe_transactions": (pb.DescribeTransactionsRequest(transactional_ids=[name]), TRANSACTION),
        "prepare_txn": (pb.PrepareTxnRequest(transactional_id=name), TRANSACTION),
        "register_run": (pb.RegisterRunRequest(ledger=ledger, run_id="run"), TRANSACTION),
        "decide_batch": (pb.DecideBatchRequest(ledger=ledger, run_id="run"), TRANSACTION),
        "delete_ledger": (pb.DeleteLedgerRequest(ledger=ledger), TRANSACTION),
    }


LISTS = {
    "list_groups": pb.ListGroupsRequest(),
    "list_transactions": pb.ListTransactionsRequest(),
    "list_ledgers": pb.ListLedgersRequest(),
}


OF_SERVERS = {
    "write_txn_markers": common.WriteTxnMarkersRequest(),
    "tell_log_starts": pb.TellLogStartsRequest(),
    "lowest_offsets": pb.LowestOffsetsRequest(),
}


async def set_up(running: Cluster) -> None:
    """Creates a group and a transactional id."""
    await allow(running, *(entry(AclOperation.ALL, resource_type) for resource_type in ALL_TYPES))
    assert error_of(await running.ask(CANARY, "offset_commit", commit(CANARY, "t"))) == 0
    request, _ = requests(CANARY)["init_producer_id"]
    assert error_of(await running.ask(CANARY, "init_producer_id", request, COORDINATOR_KEY_TYPE_TRANSACTION)) == 0


def test_an_answer_without_an_acl_does_not_tell_whether_the_group_or_id_exists(tmp_path: Path) -> None:
    async def run() -> None:
        nobody = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
        async with cluster(tmp_path, authorizer=nobody) as running:
            await set_up(running)
            stub = running.coordinator(1)
            for call, request in LISTS.items():
                assert CANARY in str(await listed(stub, call, request)) or call == "list_ledgers"
            await allow(running)
            there, missing = requests(CANARY), requests(MISSING)
            assert {*there, *LISTS, *OF_SERVERS} == {method.name for method in COORDINATOR.methods}
            for call, (request, code) in there.items():
                answer = await getattr(stub, call)(request)
                assert error_of(answer) == code, call
                other = await getattr(stub, call)(missing[call][0])
                assert str(answer).replace(CANARY, MISSING) == str(other), call
            for call, request in LISTS.items():
                assert CANARY not in str(await listed(stub, call, request)), call
            for call, request in OF_SERVERS.items():
                with pytest.raises(aio.AioRpcError) as refused:
                    await getattr(stub, call)(request)
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED, call

    asyncio.run(run())


async def listed(stub: Any, call: str, request: Any) -> Any:
    """Asks for a list after all shards are loaded, and returns it."""

    async def ask() -> Any:
        answer = await getattr(stub, call)(request)
        return None if answer.error_code in NOT_YET else answer

    answer = await eventually(ask)
    assert not answer.error_code
    return answer


def test_offsets_of_topics_that_may_not_be_read_are_kept_back(tmp_path: Path) -> None:
    async def run() -> None:
        nobody = StandardAuthorizer(super_users=(), allow_everyone_if_no_acl_found=False)
        async with cluster(tmp_path, authorizer=nobody) as running:
            await running.create_topic("other")
            await set_up(running)
            assert error_of(await running.ask(CANARY, "offset_commit", commit(CANARY, "other"))) == 0
            await allow(
                running,
                entry(AclOperation.ALL, ResourceType.GROUP),
                entry(AclOperation.READ, ResourceType.TOPIC, "other"),
            )
            stub = running.coordinator(1)
            committed = await stub.offset_commit(commit(CANARY, "t", "other", "missing"))
            assert [partition.error_code for partition in committed.partitions] == [TOPIC, 0, TOPIC]
            names = [common.TopicPartitions(topic=topic, partitions=[0]) for topic in ("t", "other", "missing")]
            fetched = await stub.offset_fetch(pb.OffsetFetchRequest(group_id=CANARY, topics=names))
            found = {offset.topic: (offset.error_code, offset.offset, offset.metadata) for offset in fetched.offsets}
            assert found == {"t": (TOPIC, -1, ""), "other": (0, 17, CANARY), "missing": (TOPIC, -1, "")}
            every = await stub.offset_fetch(pb.OffsetFetchRequest(group_id=CANARY, all_topics=True))
            assert [offset.topic for offset in every.offsets] == ["other"]
            deleted = await stub.offset_delete(pb.OffsetDeleteRequest(group_id=CANARY, topics=names))
            assert {partition.topic: partition.error_code for partition in deleted.partitions} == {
                "t": TOPIC,
                "other": 0,
                "missing": TOPIC,
            }

    asyncio.run(run())
