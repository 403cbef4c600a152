"""Tests how a group's coordinator handles the answers of a transaction's coordinator."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from klamm.errors import BrokerError, ErrorCode
from klamm.model import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_shard
from klamm.wire.v1.common_pb2 import PartitionResult
from klamm.wire.v1.coordinator_pb2 import AddPartitionsToTxnResponse
from klamm_coordinator.io.txn_registry import EpochEndedError, TxnRegistry
from klamm_coordinator.runtime.log_write import TxnProducer
from tests.support.fake_offsets_log import unavailable

SHARD = TopicPartition("__consumer_offsets", 3)
SHARD_COUNT = 50


class Coordinators:
    """A coordinator that owns every shard and gives one answer. With None, no coordinator owns a shard."""

    def __init__(self, answer: AddPartitionsToTxnResponse | Exception | None) -> None:
        self.answer = answer
        self.asked: list[Any] = []
        self.looked_for: list[tuple[str, int]] = []

    def owner_of(self, topic: str, shard: int) -> Any:
        self.looked_for.append((topic, shard))
        return None if self.answer is None else self

    async def add_partitions_to_txn(self, request: Any, timeout_ms: int) -> AddPartitionsToTxnResponse:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer


def ask(coordinators: Coordinators, *, has_topic: bool = True) -> ErrorCode:
    """Adds a partition to a transaction. Returns NONE on success."""
    try:
        add(coordinators, has_topic=has_topic)
    except BrokerError as error:
        return error.code
    return ErrorCode.NONE


def add(coordinators: Coordinators, *, has_topic: bool = True) -> None:
    topic = SimpleNamespace(partitions=range(SHARD_COUNT)) if has_topic else None
    image: Any = SimpleNamespace(topic=lambda name: topic if name == TRANSACTION_STATE_TOPIC else None)
    registry = TxnRegistry(coordinators, lambda: image)
    asyncio.run(registry.add("payments", TxnProducer(7, 3), SHARD, verify_only=False))


def test_an_ended_producer_epoch_differs_from_a_partition_outside_the_transaction() -> None:
    refused, absent = (
        AddPartitionsToTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE, error_message="it timed out"),
        AddPartitionsToTxnResponse(partitions=[PartitionResult(error_code=ErrorCode.TRANSACTION_ABORTABLE)]),
    )
    with pytest.raises(EpochEndedError, match="it timed out") as raised:
        add(Coordinators(refused))
    assert raised.value.code is ErrorCode.TRANSACTION_ABORTABLE
    with pytest.raises(BrokerError) as raised_for_partition:
        add(Coordinators(absent))
    assert not isinstance(raised_for_partition.value, EpochEndedError)


def test_the_owner_of_the_transactional_id_verifies_the_transaction() -> None:
    coordinators = Coordinators(AddPartitionsToTxnResponse(partitions=[PartitionResult()]))

    assert ask(coordinators) is ErrorCode.NONE

    assert coordinators.looked_for == [(TRANSACTION_STATE_TOPIC, coordinator_shard("payments", SHARD_COUNT))]
    (request,) = coordinators.asked
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("payments", 7, 3)
    assert [(topic.topic, list(topic.partitions)) for topic in request.topics] == [("__consumer_offsets", [3])]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_retriable_error_of_the_transaction_coordinator_becomes_load_in_progress(
    code: ErrorCode, told: ErrorCode
) -> None:
    assert ask(Coordinators(AddPartitionsToTxnResponse(error_code=code))) is told
    assert ask(Coordinators(AddPartitionsToTxnResponse(partitions=[PartitionResult(error_code=code)]))) is told


def test_a_missing_or_unreachable_transaction_coordinator_returns_load_in_progress() -> None:
    assert ask(Coordinators(None)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ask(Coordinators(None), has_topic=False) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ask(Coordinators(unavailable())) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
