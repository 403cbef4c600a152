"""Tests the sequence numbers of an idempotent producer.

Each number is assigned once and kept through retries. After a gap, the numbers start at 0 again in the next epoch.
"""

from __future__ import annotations

from klamm.model import TopicPartition
from klamm.producer.batch import Batch
from klamm.producer.sequences import EPOCH_MAX, ProducerIdAndEpoch, Sequences
from klamm.producer.user_calls import UserCalls
from klamm.records.header import SEQUENCE_MAX

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def batch(count: int, tp: TopicPartition = TP) -> Batch:
    made = Batch(tp, 0, 0, UserCalls())
    for _ in range(count):
        made.appended.append((0, None, b"", ()))
    return made


def begun(epoch: int = 0) -> Sequences:
    sequences = Sequences()
    assert sequences.needs_id
    sequences.begin(ProducerIdAndEpoch(7, epoch))
    assert not sequences.needs_id
    return sequences


def stamped(sequences: Sequences, *batches: Batch) -> list[tuple[int, int, int]]:
    sequences.stamp(batches[0].tp, batches)
    return [tuple(batch.stamp or ()) for batch in batches]


def test_each_partition_has_its_own_sequence_numbers() -> None:
    sequences = begun()
    assert stamped(sequences, batch(3), batch(2)) == [(7, 0, 0), (7, 0, 3)]
    assert stamped(sequences, batch(1)) == [(7, 0, 5)]
    assert stamped(sequences, batch(1, OTHER)) == [(7, 0, 0)]


def test_a_retried_batch_keeps_its_sequence_numbers() -> None:
    sequences = begun()
    first = batch(3)
    stamped(sequences, first)
    assert stamped(sequences, first, batch(1)) == [(7, 0, 0), (7, 0, 3)]


def test_sequence_numbers_wrap_to_zero() -> None:
    sequences = begun()
    stamped(sequences, batch(1))
    sequences._partitions[TP].next_sequence = SEQUENCE_MAX
    assert stamped(sequences, batch(2), batch(1)) == [(7, 0, SEQUENCE_MAX), (7, 0, 1)]


def test_after_the_last_batch_failed_a_new_epoch_begins() -> None:
    sequences = begun()
    lost = batch(3)
    stamped(sequences, lost)
    sequences.on_failed(lost)
    assert stamped(sequences, batch(1)) == [(7, 1, 0)]
    assert stamped(sequences, batch(1)) == [(7, 1, 1)]
    assert stamped(sequences, batch(1, OTHER)) == [(7, 0, 0)]


def test_a_failed_batch_that_was_never_sent_leaves_no_sequence_gap() -> None:
    sequences = begun()
    stamped(sequences, batch(3))
    sequences.on_failed(batch(2))
    assert stamped(sequences, batch(1)) == [(7, 0, 3)]


def test_a_written_batch_after_a_failed_one_proves_that_there_is_no_gap() -> None:
    sequences = begun()
    lost, after = batch(3), batch(1)
    stamped(sequences, lost, after)
    sequences.on_failed(lost)
    assert stamped(sequences, after) == [(7, 0, 3)]
    sequences.on_written(TP)
    assert stamped(sequences, batch(1)) == [(7, 0, 4)]


def test_after_a_sequence_gap_all_batches_are_stamped_again_in_a_new_epoch() -> None:
    sequences = begun()
    lost, after, later = batch(3), batch(2), batch(1)
    stamped(sequences, lost, after, later)
    sequences.on_failed(lost)
    after.encoded = b"under the old numbers"
    sequences.restart(TP, [after, later])
    assert stamped(sequences, after, later) == [(7, 1, 0), (7, 1, 2)]
    assert after.encoded is None


def test_the_halves_of_a_batch_keep_its_sequence_numbers() -> None:
    sequences = begun()
    whole = batch(5)
    stamped(sequences, batch(2), whole)
    first, second = whole.halves()
    assert (first.stamp, second.stamp) == ((7, 0, 2), (7, 0, 4))


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    sequences = begun(EPOCH_MAX - 1)
    lost = batch(1)
    assert stamped(sequences, lost) == [(7, EPOCH_MAX - 1, 0)]
    sequences.on_failed(lost)
    last = batch(1)
    assert stamped(sequences, last) == [(7, EPOCH_MAX, 0)]
    assert sequences.needs_id
    sequences.begin(ProducerIdAndEpoch(8, 0))
    assert stamped(sequences, batch(1)) == [(7, EPOCH_MAX, 1)]
    sequences.on_failed(last)
    assert stamped(sequences, batch(1)) == [(8, 0, 0)]
    assert stamped(sequences, batch(1, OTHER)) == [(8, 0, 0)]
