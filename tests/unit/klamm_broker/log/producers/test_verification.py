"""Tests a transaction's first append while its coordinator is asked and markers arrive (KIP-890)."""

from __future__ import annotations

import pytest

from klamm.errors import InvalidTxnStateError
from klamm.records import encode_batch, read_header
from klamm_broker.log.partition.partition_log import PartitionLog, TransactionEnd

PRODUCER = 7


def batch(epoch: int) -> bytes:
    return encode_batch(
        [(1_000, None, b"v", ())],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )


def write(log: PartitionLog, epoch: int) -> None:
    guard = log.producers.begin_verification(read_header(batch(epoch)), now_ms=0)
    log.append_as_leader(batch(epoch), leader_epoch=0, now_ms=0, guard=guard)


def end(log: PartitionLog, epoch: int, version: int) -> None:
    marker = TransactionEnd(PRODUCER, epoch, is_committed=True, coordinator_epoch=0, transaction_version=version)
    log.append_marker(marker, leader_epoch=0, now_ms=0)


@pytest.fixture
def log(harness):
    opened = harness.open()
    yield opened
    opened.abandon()


def test_the_previous_transactions_marker_may_arrive_during_the_verification_of_the_next(log) -> None:
    write(log, epoch=3)
    guard = log.producers.begin_verification(read_header(batch(4)), now_ms=0)

    end(log, epoch=4, version=2)

    log.append_as_leader(batch(4), leader_epoch=0, now_ms=0, guard=guard)
    assert log.log_end_offset == 3


def test_a_batch_is_refused_after_the_marker_of_its_own_transaction(log) -> None:
    guard = log.producers.begin_verification(read_header(batch(4)), now_ms=0)

    end(log, epoch=4, version=1)

    with pytest.raises(InvalidTxnStateError):
        log.append_as_leader(batch(4), leader_epoch=0, now_ms=0, guard=guard)


def test_a_batch_is_refused_after_the_marker_of_a_later_transaction(log) -> None:
    guard = log.producers.begin_verification(read_header(batch(4)), now_ms=0)

    end(log, epoch=5, version=2)

    with pytest.raises(Exception, match="INVALID_PRODUCER_EPOCH"):
        log.append_as_leader(batch(4), leader_epoch=0, now_ms=0, guard=guard)
