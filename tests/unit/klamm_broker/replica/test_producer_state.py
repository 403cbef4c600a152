"""Idempotent producers: in order, once, and only the latest owner."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.records.encoder import encode_batch
from klamm.records.header import SEQUENCE_MAX, BatchHeader, read_header
from klamm_broker.replica.producer_state import BATCHES_KEPT, ProducerStates


def header(sequence: int, count: int = 1, *, producer_id: int = 9, epoch: int = 0) -> BatchHeader:
    records = [(0, None, b"", ())] * count
    return read_header(encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def write(states: ProducerStates, batch: BatchHeader, base_offset: int, now_ms: int = 0) -> None:
    assert states.check(batch) is None
    states.note(batch, base_offset=base_offset, now_ms=now_ms)


def test_the_last_batches_are_known_as_duplicates_and_older_ones_as_out_of_order() -> None:
    states = ProducerStates()
    for number in range(BATCHES_KEPT + 1):
        write(states, header(2 * number, 2), base_offset=10 * number)
    for number in range(1, BATCHES_KEPT + 1):
        duplicate = states.check(header(2 * number, 2))
        assert duplicate is not None
        assert (duplicate.base_offset, duplicate.last_offset) == (10 * number, 10 * number + 1)
    with pytest.raises(EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]):
        states.check(header(0, 2))
    with pytest.raises(EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]):
        states.check(header(2, 1))


def test_a_new_epoch_starts_at_zero_and_fences_the_one_before() -> None:
    states = ProducerStates()
    write(states, header(0, 3), base_offset=0)
    with pytest.raises(EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], match="sequence 3; expected 0"):
        states.check(header(3, epoch=1))
    write(states, header(0, epoch=1), base_offset=3)
    with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH], match="with epoch 0; the latest is 1"):
        states.check(header(3))


def test_sequences_wrap() -> None:
    states = ProducerStates()
    write(states, header(SEQUENCE_MAX - 1, 2), base_offset=0)
    write(states, header(0, 2), base_offset=2)
    assert states.check(header(SEQUENCE_MAX - 1, 2)) is not None


def test_an_expired_producer_may_go_on_wherever_it_is() -> None:
    states = ProducerStates()
    write(states, header(0), base_offset=0, now_ms=100)
    write(states, header(0, producer_id=10), base_offset=1, now_ms=200)
    states.expire(older_than_ms=150)
    assert len(states) == 1
    assert states.check(header(77)) is None
    assert states.check(header(0, producer_id=10)) is not None


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 3)), max_size=60))
def test_what_is_written_is_gapless_within_each_epoch_whatever_is_sent(sent: list[tuple[int, int, int]]) -> None:
    """Any mixture of retries, gaps and stale epochs: the log holds each epoch's sequences once and in order, and
    no epoch after a later one."""
    states = ProducerStates()
    written: list[tuple[int, int, int]] = []
    for epoch, sequence, count in sent:
        batch = header(sequence, count, epoch=epoch)
        try:
            duplicate = states.check(batch)
        except BrokerError:
            continue
        if duplicate is None:
            states.note(batch, base_offset=len(written), now_ms=0)
            written.append((epoch, sequence, count))
        else:
            assert written[duplicate.base_offset] == (epoch, sequence, count)
    assert [epoch for epoch, _, _ in written] == sorted(epoch for epoch, _, _ in written)
    for (epoch, sequence, count), (next_epoch, next_sequence, _) in pairwise(written):
        assert next_sequence == (sequence + count if next_epoch == epoch else 0)
