"""Tests the meaning of transaction requests by version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from klamm.acls import CLUSTER_NAME, AclOperation, ResourceType
from klamm.errors import ErrorCode
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.common_pb2 import PartitionResult
from klamm_broker.kafka.api import ApiKey
from klamm_broker.kafka.cold.transactions import TransactionApis
from klamm_server.security.session import CALLER, Session
from tests.support.callers import allow, called_with
from tests.support.cold_requests import ALONE, FLIGHTS, TOPIC_IDS, UNKNOWN, ScriptedCoordinators, answer_of


def transactions_of(coordinators: ScriptedCoordinators) -> TransactionApis:
    return TransactionApis(coordinators, ALONE, TOPIC_IDS, None)


def added(request: Any) -> pb.AddPartitionsToTxnResponse:
    """Answers for a transaction that has partition 0 and a producer in epoch 5."""
    if request.producer_epoch != 5:
        return pb.AddPartitionsToTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
    results = [
        PartitionResult(
            topic=topic.topic,
            partition=number,
            error_code=ErrorCode.TRANSACTION_ABORTABLE if request.verify_only and number else ErrorCode.NONE,
        )
        for topic in request.topics
        for number in topic.partitions
    ]
    return pb.AddPartitionsToTxnResponse(partitions=results)


ENDED = pb.AddPartitionsToTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE)
"""The coordinator's answer to a producer whose transaction timed out, so that its epoch ended."""


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED), (3, ErrorCode.PRODUCER_FENCED)],
)
def test_a_timed_out_producer_that_adds_a_partition_gets_the_fencing_error_of_its_version(
    version: int, code: ErrorCode
) -> None:
    asked = {
        "v3_and_below_transactional_id": "t",
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 5,
        "v3_and_below_topics": [{"name": "a", "partitions": [0]}],
    }
    handle = transactions_of(ScriptedCoordinators({"add_partitions_to_txn": lambda _: ENDED})).add_partitions_to_txn
    answer = asyncio.run(answer_of(handle, ApiKey.ADD_PARTITIONS_TO_TXN, version, asked))
    ((result,),) = [topic.results_by_partition for topic in answer.results_by_topic_v3_and_below]
    assert int(result.partition_error_code) == code


@pytest.mark.parametrize("version", [0, 3, 5])
@pytest.mark.parametrize(
    ("code", "epoch_ended"), [(ErrorCode.TRANSACTION_ABORTABLE, True), (ErrorCode.PRODUCER_FENCED, False)]
)
def test_a_fenced_producer_that_commits_offsets_gets_invalid_producer_epoch(
    version: int, code: ErrorCode, epoch_ended: bool
) -> None:
    answered = pb.TxnOffsetCommitResponse(
        partitions=[PartitionResult(topic="a", partition=0, error_code=code)], epoch_ended=epoch_ended
    )
    fields = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 5, "group_id": "g", "topics": []}
    handle = transactions_of(ScriptedCoordinators({"txn_offset_commit": lambda _: answered})).txn_offset_commit
    answer = asyncio.run(answer_of(handle, ApiKey.TXN_OFFSET_COMMIT, version, fields))
    assert int(answer.topics[0].partitions[0].error_code) == ErrorCode.INVALID_PRODUCER_EPOCH


def offsets_of(*topics: dict[str, Any]) -> dict[str, Any]:
    """Returns a request that commits offset 5 in partition 0 of each topic."""
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    return {
        "transactional_id": "t",
        "group_id": "g",
        "producer_id": 8,
        "producer_epoch": 5,
        "generation_id": 3,
        "member_id": "m",
        "topics": [{**topic, "partitions": partitions} for topic in topics],
    }


def committed(request: Any) -> pb.TxnOffsetCommitResponse:
    return pb.TxnOffsetCommitResponse(
        partitions=[PartitionResult(topic=offset.topic, partition=offset.partition) for offset in request.offsets]
    )


def test_offsets_are_committed_by_topic_id_from_version_6_on() -> None:
    """The field comes from KIP-1319."""
    coordinators = ScriptedCoordinators({"txn_offset_commit": committed})
    fields = offsets_of({"topic_id": FLIGHTS}, {"topic_id": UNKNOWN})
    handle = transactions_of(coordinators).txn_offset_commit
    answer = asyncio.run(answer_of(handle, ApiKey.TXN_OFFSET_COMMIT, 6, fields))
    ((_, asked),) = coordinators.asked
    assert [(offset.topic, offset.partition, offset.offset) for offset in asked.offsets] == [("flights", 0, 5)]
    codes = [(topic.topic_id, int(topic.partitions[0].error_code)) for topic in answer.topics]
    assert codes == [(FLIGHTS, ErrorCode.NONE), (UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND])
@pytest.mark.parametrize("version", [3, 5, 6])
def test_older_clients_get_illegal_generation_for_a_stale_member_or_unknown_group(
    version: int, code: ErrorCode
) -> None:
    refused = pb.TxnOffsetCommitResponse(partitions=[PartitionResult(topic="flights", error_code=code)])
    handle = transactions_of(ScriptedCoordinators({"txn_offset_commit": lambda _: refused})).txn_offset_commit
    fields = offsets_of({"name": "flights", "topic_id": FLIGHTS})
    answer = asyncio.run(answer_of(handle, ApiKey.TXN_OFFSET_COMMIT, version, fields))
    known = code if version >= 6 else ErrorCode.ILLEGAL_GENERATION
    assert int(answer.topics[0].partitions[0].error_code) == known


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_of_several_transactions_are_added_or_verified(version: int) -> None:
    def transaction(name: str, epoch: int, verify_only: bool) -> dict[str, Any]:
        topics = [{"name": "a", "partitions": [0, 1]}, {"name": "b", "partitions": [0]}]
        return {
            "transactional_id": name,
            "producer_id": 1,
            "producer_epoch": epoch,
            "verify_only": verify_only,
            "topics": topics,
        }

    asked = [transaction("add", 5, False), transaction("verify", 5, True), transaction("zombie", 4, False)]
    handle = transactions_of(ScriptedCoordinators({"add_partitions_to_txn": added})).add_partitions_to_txn
    answer = asyncio.run(answer_of(handle, ApiKey.ADD_PARTITIONS_TO_TXN, version, {"transactions": asked}))
    assert answer.error_code == ErrorCode.NONE
    codes = {
        result.transactional_id: [
            (topic.name, part.partition_index, int(part.partition_error_code))
            for topic in result.topic_results
            for part in topic.results_by_partition
        ]
        for result in answer.results_by_transaction
    }
    assert codes == {
        "add": [("a", 0, 0), ("a", 1, 0), ("b", 0, 0)],
        "verify": [("a", 0, 0), ("a", 1, ErrorCode.TRANSACTION_ABORTABLE), ("b", 0, 0)],
        "zombie": [(topic, number, ErrorCode.PRODUCER_FENCED) for topic, number in (("a", 0), ("a", 1), ("b", 0))],
    }


@pytest.mark.parametrize("version", [4, 5])
def test_only_servers_may_add_partitions_to_several_transactions(version: int) -> None:
    topics = [{"name": "a", "partitions": [0]}]
    asked = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 5, "verify_only": False, "topics": topics}
    callers: list[Session | None] = []

    def adds(request: Any) -> pb.AddPartitionsToTxnResponse:
        callers.append(CALLER.get())
        return added(request)

    handle = transactions_of(ScriptedCoordinators({"add_partitions_to_txn": adds})).add_partitions_to_txn
    fields = {"transactions": [asked]}
    with called_with(
        allow(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "t"),
        allow(AclOperation.WRITE, ResourceType.TOPIC, "a"),
    ):
        refused = asyncio.run(answer_of(handle, ApiKey.ADD_PARTITIONS_TO_TXN, version, fields))
    assert (refused.error_code, refused.results_by_transaction) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
    assert not callers
    with called_with(allow(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)):
        answer = asyncio.run(answer_of(handle, ApiKey.ADD_PARTITIONS_TO_TXN, version, fields))
    ((result,),) = [topic.results_by_partition for topic in answer.results_by_transaction[0].topic_results]
    assert int(result.partition_error_code) == ErrorCode.NONE
    assert callers == [None], "the coordinator checks no right of the client"


@pytest.mark.parametrize(("version", "pattern"), [(1, ""), (2, "orders-.*")])
def test_transactions_are_listed_by_a_pattern_of_their_ids(version: int, pattern: str) -> None:
    def listed(request: Any) -> pb.ListTransactionsResponse:
        found = pb.ListedTransaction(transactional_id="orders-1", producer_id=7, state="Ongoing")
        return pb.ListTransactionsResponse(transactions=[found])

    coordinators = ScriptedCoordinators({"list_transactions": listed})
    fields = {"transactional_id_pattern": "orders-.*", "duration_filter": -1}
    fields |= {"state_filters": ["Ongoing", "Nonsense"], "producer_id_filters": []}
    handle = transactions_of(coordinators).list_transactions
    answer = asyncio.run(answer_of(handle, ApiKey.LIST_TRANSACTIONS, version, fields))
    assert [transaction_state.transactional_id for transaction_state in answer.transaction_states] == ["orders-1"]
    assert answer.unknown_state_filters == ("Nonsense",)
    ((_, asked),) = coordinators.asked
    assert asked.transactional_id_pattern == pattern


@pytest.mark.parametrize("version", [4, 5])
def test_end_txn_bumps_the_producer_epoch_from_version_5_on(version: int) -> None:
    coordinators = ScriptedCoordinators({"end_txn": lambda _: pb.EndTxnResponse(producer_id=8, producer_epoch=6)})
    fields = {"transactional_id": "tx", "producer_id": 8, "producer_epoch": 5, "committed": True}
    answer = asyncio.run(answer_of(transactions_of(coordinators).end_txn, ApiKey.END_TXN, version, fields))
    ((_, asked),) = coordinators.asked
    assert asked.bump_epoch is (version >= 5)
    assert answer.error_code == 0
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (8, 6)


def test_a_refused_end_txn_returns_no_next_producer_epoch() -> None:
    refused = pb.EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1)
    coordinators = ScriptedCoordinators({"end_txn": lambda _: refused})
    fields = {"transactional_id": "tx", "producer_id": 8, "producer_epoch": 5, "committed": True}
    answer = asyncio.run(answer_of(transactions_of(coordinators).end_txn, ApiKey.END_TXN, 5, fields))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.PRODUCER_FENCED, -1, -1)


@pytest.mark.parametrize(
    ("version", "code", "known"),
    [
        (1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (5, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_offsets_add_their_group_to_the_transaction_from_version_5_on(
    version: int, code: ErrorCode, known: ErrorCode
) -> None:
    def commit(request: Any) -> pb.TxnOffsetCommitResponse:
        results = [
            PartitionResult(topic=offset.topic, partition=offset.partition, error_code=code)
            for offset in request.offsets
        ]
        return pb.TxnOffsetCommitResponse(partitions=results)

    coordinators = ScriptedCoordinators({"txn_offset_commit": commit})
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    fields = {
        "transactional_id": "tx",
        "group_id": "g",
        "producer_id": 8,
        "producer_epoch": 5,
        "group_instance_id": None,
        "topics": [{"name": "flights", "partitions": partitions}],
    }
    handle = transactions_of(coordinators).txn_offset_commit
    answer = asyncio.run(answer_of(handle, ApiKey.TXN_OFFSET_COMMIT, version, fields))
    ((_, asked),) = coordinators.asked
    assert asked.verify_only is (version < 5)
    assert answer.topics[0].partitions[0].error_code == known
