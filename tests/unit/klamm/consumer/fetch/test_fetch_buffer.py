"""Tests which partitions are fetched next, and which fetched data is kept or dropped."""

from __future__ import annotations

import pytest

from klamm.consumer.fetch.fetch_buffer import FetchBuffer, FetchedData, last_header
from klamm.consumer.subscription import SubscriptionState
from klamm.model import TopicPartition
from klamm.records import encode_batch

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
SIZE = 100


@pytest.fixture
def subscription() -> SubscriptionState:
    state = SubscriptionState()
    state.assign([A, B])
    state.require(A).seek(10)
    state.require(B).seek(20)
    return state


@pytest.fixture
def buffer(subscription) -> FetchBuffer:
    return FetchBuffer(subscription, max_bytes=3 * SIZE)


def fetched(buffer: FetchBuffer, tp: TopicPartition, next_offset: int, leader_epoch: int = 3) -> FetchedData:
    """Returns the answer to the buffer's next fetch of `tp`."""
    (position,) = [each for each in buffer.wanted() if each.tp == tp]
    return FetchedData(
        tp=tp,
        position_epoch=position.position_epoch,
        fetch_offset=position.offset,
        batches=memoryview(bytes(SIZE)),
        next_offset=next_offset,
        leader_epoch=leader_epoch,
    )


def wanted(buffer: FetchBuffer) -> list[tuple[TopicPartition, int]]:
    return [(each.tp, each.offset) for each in buffer.wanted()]


def test_fetching_starts_at_the_position_and_continues_after_the_fetched_data(buffer):
    assert wanted(buffer) == [(A, 10), (B, 20)]
    assert buffer.put(fetched(buffer, A, 15))
    assert wanted(buffer) == [(B, 20)], "one fetch of a waits already"
    (data,) = buffer.take()
    assert (data.tp, data.fetch_offset) == (A, 10)
    assert wanted(buffer) == [(B, 20), (A, 15)], "the one fetched last comes last"


def test_a_reading_with_an_end_fetches_nothing_from_there_on(buffer, subscription):
    subscription.require(A).end_offset = 15
    subscription.require(B).end_offset = 20
    assert wanted(buffer) == [(A, 10)]
    assert buffer.put(fetched(buffer, A, 14))
    buffer.take()
    assert wanted(buffer) == [(A, 14)]
    assert buffer.put(fetched(buffer, A, 18))
    buffer.take()
    assert wanted(buffer) == []
    subscription.require(A).seek(3)
    assert wanted(buffer) == [(A, 3)]


def test_only_partitions_with_a_position_that_are_not_paused_are_fetched(buffer, subscription):
    subscription.require(A).request_reset(-1)
    subscription.require(B).paused = True
    assert wanted(buffer) == []
    subscription.require(B).paused = False
    assert wanted(buffer) == [(B, 20)]


def test_fetched_bytes_count_as_buffered_until_they_are_released(buffer):
    buffer.put(fetched(buffer, A, 11))
    buffer.put(fetched(buffer, B, 21))
    taken = buffer.take()
    assert buffer.buffered_bytes == 2 * SIZE
    buffer.put(fetched(buffer, A, 12))
    assert buffer.full
    assert wanted(buffer) == []
    buffer.release(taken)
    assert wanted(buffer) == [(B, 21)]


def test_a_second_answer_for_the_same_position_is_dropped(buffer):
    first, second = fetched(buffer, A, 15), fetched(buffer, A, 15)
    assert buffer.put(first)
    assert not buffer.put(second), "while the first waits"
    buffer.take()
    assert not buffer.put(second), "while the first is read"
    assert buffer.buffered_bytes == SIZE
    assert (A, 15) in wanted(buffer)


def test_an_answer_for_the_position_before_a_seek_is_dropped(buffer, subscription):
    late = fetched(buffer, A, 15)
    subscription.require(A).seek(100)
    assert not buffer.put(late)
    assert buffer.buffered_bytes == 0
    assert (A, 100) in wanted(buffer)


def test_buffered_data_of_the_position_before_a_seek_is_dropped(buffer, subscription):
    buffer.put(fetched(buffer, A, 15))
    subscription.require(A).seek(10)
    assert not buffer.has_ready()
    assert buffer.take() == []
    assert buffer.buffered_bytes == 0
    assert (A, 10) in wanted(buffer)


def test_buffered_data_of_a_partition_that_was_unassigned_and_assigned_again_is_dropped(buffer, subscription):
    buffer.put(fetched(buffer, A, 15))
    subscription.assign([B])
    subscription.assign([A, B])
    subscription.require(A).seek(10)
    assert buffer.take() == []
    assert (A, 10) in wanted(buffer)


def test_buffered_data_of_a_paused_partition_is_kept_until_it_resumes(buffer, subscription):
    buffer.put(fetched(buffer, A, 15))
    subscription.require(A).paused = True
    assert buffer.take() == []
    subscription.require(A).paused = False
    assert [data.tp for data in buffer.take()] == [A]


def test_the_buffer_is_saturated_while_it_holds_unread_data(buffer):
    assert not buffer.saturated()
    buffer.put(fetched(buffer, A, 15))
    assert buffer.saturated()
    buffer.take()
    assert not buffer.saturated()


def test_a_fetch_names_the_leader_epoch_of_the_batch_before_its_offset(buffer, subscription):
    """The fetch names the epoch of the batch before its offset.

    At first this is the batch before the position, later the last batch that was fetched ahead.
    """

    def epochs() -> dict[TopicPartition, int]:
        return {each.tp: each.last_fetched_epoch for each in buffer.wanted()}

    subscription.require(B).leader_epoch = 2
    assert epochs() == {A: -1, B: 2}
    buffer.put(fetched(buffer, A, 15, leader_epoch=4))
    buffer.take()
    assert epochs() == {A: 4, B: 2}
    subscription.require(A).refetch()
    assert epochs()[A] == -1


def test_last_header_returns_the_header_of_the_last_batch():
    first = encode_batch([(0, None, b"v", ())] * 3, base_offset=7)
    second = encode_batch([(0, None, b"v", ())] * 2, base_offset=50)
    assert last_header(memoryview(first)).next_offset == 10
    assert last_header(memoryview(first + second)).next_offset == 52
