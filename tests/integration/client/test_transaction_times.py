"""Tests the transactional API against scripted brokers and coordinators that answer too late."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from klamm import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from klamm.errors import AbortableTransactionError, DeliveryTimeoutError, ErrorCode, IllegalStateError, KlammError
from tests.support.scripted_broker import Answer, ScriptedCluster

T = TypeVar("T")
GROUP = ConsumerGroupMetadata("g", 3, "member-1", "instance-1")
OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(42)}


@pytest.fixture
def cluster():
    scripted = ScriptedCluster()
    scripted.create_topic("t", 2)
    with scripted.serve_in_thread():
        yield scripted


def new_producer(cluster, **overrides) -> Producer:
    settings = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "max_block_ms": 60_000, "linger_ms": 0}
    one = Producer(bootstrap_servers=cluster.bootstrap, transactional_id="payments", **(settings | overrides))
    in_time(one.init_transactions)
    return one


def in_time(call: Callable[[], T]) -> T:
    """Repeats `call` until it returns in time, and returns its result.

    The producer's max.block.ms is short, so a busy machine may need more than one call.
    """
    while True:
        try:
            return call()
        except KlammError as error:
            if getattr(error, "code", None) is not ErrorCode.REQUEST_TIMED_OUT:
                raise


def names(cluster) -> list[str]:
    return [name for name, _ in cluster.transaction_calls]


def test_a_transaction_with_an_expired_record_must_be_aborted(cluster):
    cluster.usual_answer = Answer(error=ErrorCode.NOT_ENOUGH_REPLICAS)
    with new_producer(cluster, request_timeout_ms=50, delivery_timeout_ms=60) as producer:
        producer.begin_transaction()
        producer.send("t", b"1", partition=0)

        with pytest.raises(AbortableTransactionError) as raised:
            producer.commit_transaction()
        assert isinstance(raised.value.__cause__, DeliveryTimeoutError)
        producer.abort_transaction()


def test_a_transaction_call_that_timed_out_must_be_repeated_before_any_other_call(cluster):
    with new_producer(cluster, max_block_ms=500) as producer:
        go_on = threading.Event()
        producer.begin_transaction()
        in_time(lambda: producer.send("t", b"1", partition=0)).result()
        cluster.transaction_script["end_txn"].append(go_on)
        with pytest.raises(KlammError, match=r"max\.block\.ms") as raised:
            producer.commit_transaction()
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT  # type: ignore[attr-defined]

        for call in (producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(IllegalStateError, match="commit_transaction"):
                call()
        go_on.set()
        in_time(producer.commit_transaction)

        assert names(cluster).count("end_txn") == 1
        producer.begin_transaction()


def test_a_transaction_whose_offset_commit_timed_out_must_be_aborted(cluster):
    with new_producer(cluster, max_block_ms=500) as producer:
        go_on = threading.Event()
        cluster.transaction_script["txn_offset_commit"].append(go_on)
        producer.begin_transaction()

        with pytest.raises(AbortableTransactionError, match=r"max\.block\.ms"):
            producer.send_offsets_to_transaction(OFFSETS, GROUP)
        go_on.set()
        with pytest.raises(AbortableTransactionError):
            producer.commit_transaction()
        in_time(producer.abort_transaction)
