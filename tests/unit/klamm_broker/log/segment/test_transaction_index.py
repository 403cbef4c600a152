"""Tests `.txnindex` files: Kafka's bytes, the entries that a read needs, and refusal of any damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.records import encode_batch, read_header
from klamm_broker.log.files.storage_failure import LogDirFailure
from klamm_broker.log.partition.partition_log import TransactionEnd
from klamm_broker.log.segment.offset_index import CorruptIndexError
from klamm_broker.log.segment.transaction_index import ENTRY_SIZE_BYTES, AbortedTransaction, TransactionIndex

ENTRY = AbortedTransaction(producer_id=0x1122334455, first_offset=258, last_offset=4_660, last_stable_offset=259)
KAFKAS = bytes.fromhex("00000000001122334455000000000000010200000000000012340000000000000103")
"""The bytes of `ENTRY` as Kafka's `AbortedTxn(producerId, firstOffset, lastOffset, lastStableOffset)` writes
them: a short, then four longs."""


def test_the_bytes_are_those_of_kafkas_aborted_txn() -> None:
    index = TransactionIndex(0)
    index.append(ENTRY)
    assert index.unwritten() == KAFKAS
    assert len(KAFKAS) == ENTRY_SIZE_BYTES == 34
    assert list(TransactionIndex.decode(0, KAFKAS).entries()) == [ENTRY]


def test_the_file_of_a_segment_is_made_with_the_first_abort(harness) -> None:
    log = harness.open()
    for epoch, is_committed in ((0, True), (1, False)):
        batch = encode_batch(
            [(1_000, None, b"v", ())], producer_id=9, producer_epoch=epoch, base_sequence=0, is_transactional=True
        )
        guard = log.producers.begin_verification(read_header(batch), now_ms=0)
        log.append_as_leader(batch, leader_epoch=0, now_ms=0, guard=guard)
        log.append_marker(TransactionEnd(9, epoch + 1, is_committed, 0, 2), leader_epoch=0, now_ms=0)
        log.flusher.flush()
        assert harness.path(0, ".txnindex").exists() != is_committed
    expected = TransactionIndex(0)
    expected.append(AbortedTransaction(producer_id=9, first_offset=2, last_offset=3, last_stable_offset=4))
    assert harness.path(0, ".txnindex").read_bytes() == expected.unwritten()


@pytest.mark.parametrize(
    "data",
    [
        KAFKAS[:-1],
        b"\0\1" + KAFKAS[2:],
        KAFKAS + KAFKAS,
        KAFKAS[:10] + KAFKAS[18:26] * 2 + KAFKAS[26:],
    ],
    ids=["torn", "version", "order", "ends where it begins"],
)
def test_a_damaged_transaction_index_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        TransactionIndex.decode(0, data)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=12), st.integers(0, 60), st.integers(0, 60))
def test_a_search_for_aborted_transactions_equals_a_scan_of_all_entries(
    steps: list[tuple[int, int]], start: int, end: int
) -> None:
    index, offset = TransactionIndex(0), 0
    for gap, length in steps:
        first = offset + gap
        offset = first + length
        index.append(AbortedTransaction(1, first, offset, offset + 1))
    found, is_all = index.between(start, end)
    entries = list(index.entries())
    assert found == [entry for entry in entries if entry.last_offset >= start and entry.first_offset < end]
    assert is_all == any(entry.last_stable_offset >= end for entry in entries)
    index.truncate_to(start)
    assert list(index.entries()) == [entry for entry in entries if entry.last_offset < start]


def test_a_transaction_index_that_vanished_fails_the_log_dir_and_is_not_taken_as_empty(harness) -> None:
    log = harness.open()
    batch = encode_batch(
        [(1_000, None, b"v", ())], producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    guard = log.producers.begin_verification(read_header(batch), now_ms=0)
    log.append_as_leader(batch, leader_epoch=0, now_ms=0, guard=guard)
    log.append_marker(TransactionEnd(9, 1, False, 0, 2), leader_epoch=0, now_ms=0)
    log.close()
    log = harness.open(clean=True)
    for number in range(60):
        log.append_as_leader(encode_batch([(1_000, None, b"x" * 100, ())]), leader_epoch=0, now_ms=number)
    for slot in range(1, 5):
        log.segments.opened(log.segments.items[slot])
    harness.path(0, ".txnindex").unlink()
    with pytest.raises(LogDirFailure):
        log.reader.aborted_between(0, 2)
