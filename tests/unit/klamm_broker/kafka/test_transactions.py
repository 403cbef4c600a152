"""What transactions' requests mean by version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from cold_requests import ScriptedCoordinators, answer_of

from klamm.errors import ErrorCode
from klamm.wire.v1 import coordinator_pb2 as pb
from klamm.wire.v1.common_pb2 import PartitionResult
from klamm_broker.kafka.requests import ApiKey
from klamm_broker.kafka.transactions import Transactions


def transactions_of(coordinators: ScriptedCoordinators) -> Transactions:
    return Transactions(coordinators, None, None)  # type: ignore[arg-type]


def added(request: Any) -> pb.AddPartitionsToTxnResponse:
    """As of a transaction that has partition 0, with a producer in epoch 5."""
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
        one.transactional_id: [
            (topic.name, part.partition_index, int(part.partition_error_code))
            for topic in one.topic_results
            for part in topic.results_by_partition
        ]
        for one in answer.results_by_transaction
    }
    assert codes == {
        "add": [("a", 0, 0), ("a", 1, 0), ("b", 0, 0)],
        "verify": [("a", 0, 0), ("a", 1, ErrorCode.TRANSACTION_ABORTABLE), ("b", 0, 0)],
        "zombie": [(topic, number, ErrorCode.PRODUCER_FENCED) for topic, number in (("a", 0), ("a", 1), ("b", 0))],
    }


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
    assert [one.transactional_id for one in answer.transaction_states] == ["orders-1"]
    assert answer.unknown_state_filters == ("Nonsense",)
    ((_, asked),) = coordinators.asked
    assert asked.transactional_id_pattern == pattern
