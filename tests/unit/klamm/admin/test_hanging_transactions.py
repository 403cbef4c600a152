"""Tests which open transactions of partitions count as hanging.

Young ones and those that the coordinator knows do not.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from klamm.admin.async_transactions import TransactionOperations
from klamm.admin.types import ProducerState, TransactionDescription, TransactionListing
from klamm.model import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR_MS = 3_600_000


def producer(producer_id: int, *, start_offset: int = 5, silent_ms: int = HOUR_MS) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=1,
        last_sequence=0,
        last_timestamp_ms=round(time.time() * 1000) - silent_ms,
        coordinator_epoch=0,
        current_txn_start_offset=start_offset,
    )


class Cluster(TransactionOperations):
    """A cluster where producer 1 has an open transaction that may write to TP, unless arguments differ."""

    def __init__(self, *producers: ProducerState, state: str = "Ongoing", partition: TopicPartition = TP) -> None:
        self._producers = producers
        self._state = state
        self._partition = partition

    async def describe_producers(self, partitions, *, timeout_ms=None):
        return dict.fromkeys(partitions, self._producers)

    async def list_transactions(self, *, states=(), producer_ids=(), longer_than_ms=0, timeout_ms=None):
        listing = TransactionListing(transactional_id="id", producer_id=1, state=self._state)
        return {"id": listing} if 1 in producer_ids else {}

    async def describe_transactions(self, transactional_ids, *, timeout_ms=None):
        return {
            transactional_id: TransactionDescription(
                transactional_id=transactional_id,
                state=self._state,
                producer_id=1,
                producer_epoch=1,
                transaction_timeout_ms=1,
                start_time_ms=0,
                partitions=(self._partition,),
            )
            for transactional_id in transactional_ids
        }


def found_in(cluster: Cluster) -> list[int]:
    found = asyncio.run(cluster.find_hanging_transactions([TP]))
    assert all(one.tp == TP for one in found)
    return [one.producer.producer_id for one in found]


def test_a_transaction_that_no_coordinator_knows_is_hanging():
    assert found_in(Cluster(producer(2))) == [2]


def test_a_transaction_that_its_coordinator_knows_is_not_hanging():
    assert found_in(Cluster(producer(1), producer(2))) == [2]


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_an_open_transaction_that_its_coordinator_has_ended_is_hanging(state):
    assert found_in(Cluster(producer(1), state=state)) == [1]


def test_an_open_transaction_that_lacks_the_partition_at_its_coordinator_is_hanging():
    assert found_in(Cluster(producer(1), partition=OTHER)) == [1]


def test_a_transaction_with_a_recent_write_is_not_hanging():
    assert found_in(Cluster(producer(2, silent_ms=60_000))) == []


def test_a_producer_without_an_open_transaction_is_ignored():
    assert found_in(Cluster(producer(2, start_offset=-1))) == []
