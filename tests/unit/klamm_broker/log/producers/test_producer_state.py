"""Tests idempotent producers: batches are appended in order, once, and only from the latest owner."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.errors import EXCEPTIONS, BrokerError, ErrorCode
from klamm.records.encoder import encode_batch
from klamm.records.header import SEQUENCE_MAX, BatchHeader, TimestampType, read_header
from klamm_broker.log.producers.producer_state import RUN_LENGTH_MAX, RUNS_KEPT, ProducerRow, ProducerStates, Run

OUT_OF_ORDER = EXCEPTIONS[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
FENCED = EXCEPTIONS[ErrorCode.INVALID_PRODUCER_EPOCH]


def header(sequence: int, count: int = 1, *, producer_id: int = 9, epoch: int = 0, **options: object) -> BatchHeader:
    records = [(0, None, b"", ())] * count
    return read_header(
        encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)
    )


def write(states: ProducerStates, batch: BatchHeader, base_offset: int, now_ms: int = 0) -> None:
    assert states.check([batch]) is None
    states.note(batch, base_offset=base_offset, now_ms=now_ms)


def offsets(duplicate: Run | None) -> tuple[int, int] | None:
    return None if duplicate is None else (duplicate.base_offset, duplicate.next_offset - 1)


def test_the_last_runs_of_a_producer_among_other_batches_are_known_as_duplicates() -> None:
    states = ProducerStates()
    for number in range(RUNS_KEPT + 1):
        write(states, header(2 * number, 2), base_offset=10 * number)
    for number in range(1, RUNS_KEPT + 1):
        assert offsets(states.check([header(2 * number, 2)])) == (10 * number, 10 * number + 1)
    with pytest.raises(OUT_OF_ORDER):
        states.check([header(0, 2)])
    with pytest.raises(OUT_OF_ORDER):
        states.check([header(3, 2)])


def test_any_batch_of_one_contiguous_run_is_known_as_a_duplicate() -> None:
    states = ProducerStates()
    for number in range(20):
        write(states, header(3 * number, 3), base_offset=100 + 3 * number)
    assert offsets(states.check([header(0, 3)])) == (100, 102)
    assert offsets(states.check([header(30, 3), header(33, 1)])) == (130, 133)
    with pytest.raises(OUT_OF_ORDER):
        states.check([header(57, 3), header(60, 3)])


def test_the_batches_of_a_record_set_must_be_of_one_producer_and_in_sequence() -> None:
    states = ProducerStates()
    assert states.check([header(0, 2), header(2, 1), header(3, 4)]) is None
    for wrong in (header(3, 1), header(2, 1, epoch=1), header(2, 1, producer_id=8)):
        with pytest.raises(EXCEPTIONS[ErrorCode.INVALID_RECORD]):
            states.check([header(0, 2), wrong])


def test_a_new_epoch_starts_at_zero_and_fences_the_one_before() -> None:
    states = ProducerStates()
    write(states, header(0, 3), base_offset=0)
    with pytest.raises(OUT_OF_ORDER, match="sequence 3; expected 0"):
        states.check([header(3, epoch=1)])
    write(states, header(0, epoch=1), base_offset=3)
    with pytest.raises(FENCED, match="with epoch 0; the latest is 1"):
        states.check([header(3)])


def test_sequence_numbers_wrap_to_zero_after_the_largest_one() -> None:
    states = ProducerStates()
    write(states, header(SEQUENCE_MAX - 1, 2), base_offset=0)
    write(states, header(0, 2), base_offset=2)
    assert offsets(states.check([header(SEQUENCE_MAX - 1, 2)])) == (0, 1)
    assert offsets(states.check([header(SEQUENCE_MAX, 2)])) == (1, 2)


def test_a_run_never_holds_a_sequence_number_twice() -> None:
    states = ProducerStates()
    long = header(0)._replace(last_offset_delta=RUN_LENGTH_MAX - 1)
    for number in range(3):
        states.note(long._replace(base_sequence=number * RUN_LENGTH_MAX & SEQUENCE_MAX), base_offset=number, now_ms=0)
        states.note(long, base_offset=0, now_ms=0)
    states = ProducerStates()
    for number in range(3):
        sequence, offset = number * RUN_LENGTH_MAX & SEQUENCE_MAX, number * RUN_LENGTH_MAX
        write(states, long._replace(base_sequence=sequence), base_offset=offset)
    write(states, header(RUN_LENGTH_MAX), base_offset=3 * RUN_LENGTH_MAX)
    assert offsets(states.check([header(1)])) == (2 * RUN_LENGTH_MAX + 1,) * 2


def test_a_duplicate_has_the_log_append_time_of_the_first() -> None:
    states = ProducerStates()
    stamped = header(0, timestamp_type=TimestampType.LOG_APPEND_TIME)._replace(max_timestamp_ms=5)
    states.note(stamped, base_offset=0, now_ms=0)
    states.note(stamped._replace(base_sequence=1, max_timestamp_ms=6), base_offset=1, now_ms=0)
    found = [states.check([header(sequence)]) for sequence in (0, 1)]
    assert [run and run.timestamp_ms for run in found] == [5, 6]


def test_an_expired_producer_may_continue_at_any_sequence() -> None:
    states = ProducerStates()
    write(states, header(0), base_offset=0, now_ms=100)
    write(states, header(0, producer_id=10), base_offset=1, now_ms=200)
    states.expire(older_than_ms=150)
    assert len(states) == 1
    assert states.check([header(77)]) is None
    assert states.check([header(0, producer_id=10)]) is not None


def test_only_a_log_that_never_had_a_record_requires_sequence_0_of_an_unknown_producer() -> None:
    """The producer's state may have expired in any other log."""
    states = ProducerStates()
    with pytest.raises(OUT_OF_ORDER, match="sends sequence 17 to a partition that never had a record; expected 0"):
        states.check([header(17, 5)], is_new_log=True)
    assert states.check([header(17, 5)]) is None
    assert states.check([header(0, 17)], is_new_log=True) is None
    assert states.check([header(-1)], is_new_log=True) is None


def test_a_producer_that_writes_does_not_expire() -> None:
    states = ProducerStates()
    for sequence in range(3):
        write(states, header(sequence), base_offset=sequence, now_ms=100 * sequence)
    states.expire(older_than_ms=200)
    assert len(states) == 1


def test_of_too_many_producers_the_one_that_wrote_first_is_forgotten() -> None:
    states = ProducerStates(ids_max=2)
    for offset, (number, sequence) in enumerate([(1, 0), (2, 0), (1, 1), (3, 0)]):
        write(states, header(sequence, producer_id=number), base_offset=offset)
    assert {row.producer_id for row in states.rows()} == {1, 3}


def test_truncation_keeps_producer_runs_below_the_offset() -> None:
    states = ProducerStates()
    write(states, header(0, 5), base_offset=0)
    write(states, header(0, 5, producer_id=10), base_offset=5)
    write(states, header(5, 5), base_offset=10)
    assert states.truncate_to(12)
    assert [(row.producer_id, row.run[:3]) for row in states.rows()] == [
        (10, (0, 5, 5)),
        (9, (0, 0, 5)),
        (9, (5, 10, 2)),
    ]
    assert states.truncate_to(3)
    assert list(states.rows()) == [ProducerRow(9, 0, Run(0, 0, 3, 0), 0)]


def test_truncation_needs_the_log_if_older_runs_were_dropped() -> None:
    states = ProducerStates()
    for number in range(RUNS_KEPT + 2):
        write(states, header(number), base_offset=2 * number)
    assert states.truncate_to(2 * RUNS_KEPT + 3), "nothing was written there"
    assert not states.truncate_to(2 * RUNS_KEPT + 2), "of the last five runs one is not known any more"


@pytest.mark.parametrize("batch", [header(4), header(0, epoch=1)])
def test_truncation_needs_the_log_if_the_state_before_the_only_run_is_unknown(batch: BatchHeader) -> None:
    states = ProducerStates()
    states.note(batch, base_offset=50, now_ms=0)
    assert not states.truncate_to(50)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 3), st.booleans()), max_size=60))
def test_written_sequences_have_no_gap_within_an_epoch_whatever_producers_send(
    sent: list[tuple[int, int, int, bool]],
) -> None:
    """The input is any mixture of retries, gaps, stale epochs and other producers' records.

    The log must have each epoch's sequences once and in order, and epochs must only grow.
    """
    states = ProducerStates()
    written: dict[int, tuple[int, int]] = {}
    end_offset = 0
    for epoch, sequence, count, is_interrupted in sent:
        end_offset += is_interrupted
        batch = header(sequence, count, epoch=epoch)
        try:
            duplicate = states.check([batch])
        except BrokerError:
            continue
        sequences = [(epoch, sequence + index) for index in range(count)]
        if duplicate is None:
            states.note(batch, base_offset=end_offset, now_ms=0)
            written.update(enumerate(sequences, end_offset))
            end_offset += count
        else:
            assert [written[duplicate.base_offset + index] for index in range(count)] == sequences
        states.check_invariants(end_offset)
    for (epoch, sequence), (next_epoch, next_sequence) in pairwise(written.values()):
        if next_epoch == epoch:
            assert next_sequence == sequence + 1
        else:
            assert (next_epoch > epoch, next_sequence) == (True, 0)


def test_the_age_of_open_transactions_is_that_of_the_earliest_last_write() -> None:
    states = ProducerStates()
    write(states, header(0), base_offset=0, now_ms=5)
    assert states.open_transaction_last_ms() is None, "none is open"
    for number, producer_id in enumerate((7, 8)):
        transactional = header(0, producer_id=producer_id, is_transactional=True)
        assert states.check([transactional], is_verified=True) is None
        states.note(transactional, base_offset=10 + number, now_ms=100 + number)
    assert states.open_transaction_last_ms() == 100, "of the earliest one"
