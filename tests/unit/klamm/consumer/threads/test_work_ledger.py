"""Tests that partitions keep their order whichever worker has them, and that only handled records are committed."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.consumer import ConsumerRecord
from klamm.consumer.threads.work_ledger import WorkLedger
from klamm.model import TopicPartition
from klamm.offsets import OffsetAndMetadata

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def records(tp: TopicPartition, begin: int, end: int) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
            timestamp=0,
            timestamp_type=0,
            key=None,
            value=b"",
            headers=(),
            leader_epoch=3,
        )
        for offset in range(begin, end)
    ]


def process_all(ledger: WorkLedger, count_max: int = 1_000) -> list[tuple[int, int]]:
    """Processes records as one worker while there are any. Returns partition and offset of each."""
    processed = []
    while (work := ledger.take()) is not None and len(processed) < count_max:
        while (record := ledger.next_record(work)) is not None:
            ledger.note_done(work, record)
            processed.append((record.partition, record.offset))
        ledger.release(work)
    return processed


def test_a_partition_is_held_by_one_worker_at_a_time() -> None:
    ledger = WorkLedger()
    ledger.add(A, records(A, 0, 3))

    work = ledger.take()
    ledger.add(A, records(A, 3, 5))
    assert ledger.take() is None
    ledger.release(work)

    assert process_all(ledger) == [(0, offset) for offset in range(5)]


def test_partitions_take_turns() -> None:
    ledger = WorkLedger()
    ledger.add(A, records(A, 0, 4))
    ledger.add(B, records(B, 0, 4))
    order = []
    while (work := ledger.take()) is not None:
        record = ledger.next_record(work)
        order.append(record.partition)
        ledger.note_done(work, record)
        ledger.release(work)

    assert order == [0, 1] * 4


def test_only_processed_records_are_committed_and_only_once() -> None:
    ledger = WorkLedger()
    ledger.add(A, records(A, 10, 13))
    assert ledger.to_commit() == {}

    work = ledger.take()
    first = ledger.next_record(work)
    ledger.next_record(work)
    ledger.note_done(work, first)

    assert ledger.to_commit() == {A: OffsetAndMetadata(11, leader_epoch=3)}
    assert ledger.to_commit([B]) == {}
    ledger.note_committed(ledger.to_commit())
    assert ledger.to_commit() == {}


def test_no_more_records_of_a_revoked_partition_are_processed() -> None:
    ledger = WorkLedger()
    ledger.add(A, records(A, 0, 3))
    ledger.add(B, records(B, 0, 1))
    work = ledger.take()
    record = ledger.next_record(work)

    ledger.give_up([A])

    assert ledger.busy([A, B]) == [A]
    assert ledger.next_record(work) is None
    ledger.note_done(work, record)
    ledger.release(work)
    assert ledger.busy([A, B]) == []
    assert ledger.to_commit([A]) == {A: OffsetAndMetadata(1, leader_epoch=3)}
    ledger.forget([A])
    assert ledger.to_commit() == {}
    assert process_all(ledger) == [(1, 0)]


def test_a_queued_partition_can_be_revoked_before_a_worker_takes_it() -> None:
    ledger = WorkLedger()
    ledger.add(A, records(A, 0, 3))

    ledger.give_up([A])
    ledger.forget([A])
    ledger.add(A, records(A, 7, 8))

    assert process_all(ledger) == [(0, 7)]


def test_records_processed_after_their_partition_was_reassigned_are_not_committed() -> None:
    ledger = WorkLedger()
    ledger.add(A, records(A, 0, 3))
    late = ledger.take()
    record = ledger.next_record(late)
    ledger.give_up([A])
    ledger.forget([A])
    ledger.add(A, records(A, 20, 21))

    ledger.note_done(late, record)
    ledger.release(late)

    assert ledger.to_commit() == {}
    assert process_all(ledger) == [(0, 20)]


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "take", "process", "back", "give up"]), st.integers(0, 1), st.integers(1, 3)),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS)
def test_in_any_order_of_events_offsets_only_rise_and_no_record_is_skipped(steps) -> None:
    ledger = WorkLedger()
    ends: dict[int, int] = defaultdict(int)
    processed: dict[int, list[int]] = defaultdict(list)
    held = []
    for kind, number, count in steps:
        tp = (A, B)[number]
        if kind == "add":
            ledger.add(tp, records(tp, ends[number], ends[number] + count))
            ends[number] += count
        elif kind == "take" and (work := ledger.take()) is not None:
            held.append(work)
        elif kind == "process" and held:
            for _ in range(count):
                if (record := ledger.next_record(held[0])) is not None:
                    processed[record.partition].append(record.offset)
                    ledger.note_done(held[0], record)
        elif kind == "back" and held:
            ledger.release(held.pop(0))
        elif kind == "give up" and not ledger.busy([tp]):
            ledger.give_up([tp])
            offset = ledger.to_commit([tp]).get(tp)
            ledger.forget([tp])
            # The next worker of the partition begins there.
            ends[number] = offset.offset if offset is not None else (processed[number] or [-1])[-1] + 1
        assert len({work.tp for work in held}) == len(held)
        for partition, offset in ledger.to_commit().items():
            assert offset.offset == processed[partition.partition][-1] + 1
    for offsets in processed.values():
        assert offsets == list(range(len(offsets)))
