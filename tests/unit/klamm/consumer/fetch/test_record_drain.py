"""Tests how polls share the fetched data, and iteration over single records."""

from __future__ import annotations

import pytest

from klamm.consumer.core.record_iteration import RecordIteration
from klamm.consumer.core.unfinished_records import UnfinishedRecords
from klamm.consumer.errors import RecordDeserializationError
from klamm.consumer.fetch.fetch_buffer import FetchedData, last_header
from klamm.consumer.fetch.fetched_data_reader import ReaderConfig
from klamm.consumer.fetch.record_drain import RecordDrain
from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition
from klamm.records import encode_batch

A, B, C = (TopicPartition(name, 0) for name in "abc")


@pytest.fixture
def subscription() -> SubscriptionState:
    state = SubscriptionState()
    state.assign([A, B, C])
    for tp in (A, B, C):
        state.require(tp).seek(0)
    return state


@pytest.fixture
def drain(subscription) -> RecordDrain:
    return RecordDrain(subscription, ReaderConfig())


def data(subscription, tp: TopicPartition, values: list[bytes], at: int = 0) -> FetchedData:
    view = memoryview(encode_batch([(0, None, value, ()) for value in values], base_offset=at))
    return FetchedData(
        tp=tp,
        position_epoch=subscription.require(tp).position_epoch,
        fetch_offset=at,
        batches=view,
        next_offset=last_header(view).next_offset,
        leader_epoch=last_header(view).partition_leader_epoch,
    )


def load_all(drain, subscription, count: int = 4) -> None:
    drain.load(data(subscription, tp, [b"%d" % number for number in range(count)]) for tp in (A, B, C))


def shape(records) -> dict[str, list[int]]:
    return {tp.topic: [record.offset for record in of_tp] for tp, of_tp in records.items()}


def test_a_partition_that_filled_a_poll_waits_for_the_others(drain, subscription):
    load_all(drain, subscription)
    assert [shape(drain.read(3)) for _ in range(5)] == [
        {"a": [0, 1, 2]},
        {"b": [0, 1, 2]},
        {"c": [0, 1, 2]},
        {"a": [3], "b": [3], "c": [3]},
        {},
    ]


def test_positions_advance_with_the_returned_records(drain, subscription):
    load_all(drain, subscription)
    drain.read(6)
    assert [subscription.require(tp).position for tp in (A, B, C)] == [4, 2, 0]


def test_data_before_a_seek_is_dropped_for_the_data_fetched_after_it(drain, subscription):
    drain.load(data(subscription, tp, [b"0"] * 4) for tp in (A, B))
    subscription.require(B).seek(2)
    drain.read(4)
    assert not drain.reading()

    drain.load([data(subscription, B, [b"2"] * 2, at=2)])

    assert shape(drain.read(10)) == {"b": [2, 3]}
    assert [each.tp for each in drain.finished()] == [A, B, B]


def test_finished_fetches_are_returned_once(drain, subscription):
    load_all(drain, subscription)
    drain.read(6)
    assert [each.tp for each in drain.finished()] == [A]
    assert drain.finished() == []


def test_data_of_a_partition_is_dropped_after_a_seek(drain, subscription):
    load_all(drain, subscription)
    drain.read(1)
    subscription.require(A).seek(100)
    assert shape(drain.read(100)) == {"b": [0, 1, 2, 3], "c": [0, 1, 2, 3]}
    assert subscription.require(A).position == 100
    assert not drain.reading()


def test_data_of_unassigned_partitions_is_dropped(drain, subscription):
    load_all(drain, subscription)
    subscription.assign([B])
    assert shape(drain.read(100)) == {"b": [0, 1, 2, 3]}
    assert {each.tp for each in drain.finished()} == {A, B, C}


def test_a_resumed_partition_continues_at_its_position(drain, subscription):
    load_all(drain, subscription)
    drain.read(2)
    subscription.require(A).paused = True
    assert shape(drain.read(100)) == {"b": [0, 1, 2, 3], "c": [0, 1, 2, 3]}
    assert not drain.reading()
    subscription.require(A).paused = False
    assert shape(drain.read(100)) == {"a": [2, 3]}


def test_an_error_waits_until_the_records_before_it_are_returned(subscription):
    drain = RecordDrain(subscription, ReaderConfig(value_deserializer=int))
    drain.load([data(subscription, A, [b"1", b"no"]), data(subscription, B, [b"7"])])
    assert shape(drain.read(100)) == {"a": [0], "b": [0]}
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as raised:
            drain.read(100)
    subscription.require(raised.value.topic_partition).seek(raised.value.offset + 1)
    assert drain.read(100) == {}


def test_the_epoch_before_the_position_is_that_of_the_last_batch_read(drain, subscription):
    """The epoch counts even if the batch returns no record.

    Otherwise a position after the batch would seem to lie beyond the former epoch.
    """
    first = encode_batch([(0, None, b"v", ())], base_offset=0, partition_leader_epoch=3)
    nothing = encode_batch([], base_offset=1, partition_leader_epoch=4, offset_deltas=[], last_offset_delta=4)
    view = memoryview(first + nothing)
    drain.load(
        [
            FetchedData(
                tp=A,
                position_epoch=subscription.require(A).position_epoch,
                fetch_offset=0,
                batches=view,
                next_offset=6,
                leader_epoch=4,
            )
        ]
    )
    state = subscription.require(A)
    drain.read(1)
    assert (state.position, state.leader_epoch) == (1, 3)
    drain.read(1)
    assert (state.position, state.leader_epoch) == (6, 4)


# --- iteration


@pytest.fixture
def iteration(drain, subscription) -> RecordIteration:
    load_all(drain, subscription, count=3)
    iteration = RecordIteration(subscription, UnfinishedRecords(subscription))
    iteration.load(drain.read(100))
    return iteration


def position_of(subscription, tp) -> int:
    return subscription.require(tp).position


def test_positions_advance_with_the_iteration_and_not_with_the_poll(iteration, subscription):
    seen = [iteration.next().offset for _ in range(4)]
    assert seen == [0, 1, 2, 0]
    assert [position_of(subscription, tp) for tp in (A, B, C)] == [3, 1, 0]


def test_the_iteration_ends_after_the_records_of_the_poll(iteration, subscription):
    assert len(list(iter(iteration.next, None))) == 9
    assert [position_of(subscription, tp) for tp in (A, B, C)] == [3, 3, 3]
    assert not iteration


def test_a_seek_inside_the_loop_drops_the_rest_of_that_partition(iteration, subscription):
    iteration.next()
    subscription.require(A).seek(50)
    rest = [record.topic for record in iter(iteration.next, None)]
    assert rest == ["b"] * 3 + ["c"] * 3
    assert position_of(subscription, A) == 50


def test_a_pause_inside_the_loop_keeps_the_rest_for_later(iteration, subscription):
    iteration.next()
    epoch = subscription.require(A).position_epoch
    subscription.require(A).paused = True
    assert iteration.next().topic == "b"
    assert position_of(subscription, A) == 1
    assert subscription.require(A).position_epoch != epoch, "the rest must be fetched again"


def test_leaving_the_loop_leaves_the_rest_unread(iteration, subscription):
    iteration.next()
    iteration.abandon()
    assert iteration.next() is None
    assert [position_of(subscription, tp) for tp in (A, B, C)] == [1, 0, 0]
