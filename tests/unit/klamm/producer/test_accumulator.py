from __future__ import annotations

from typing import Any

import pytest

from klamm.errors import EXCEPTIONS, ErrorCode, IllegalStateError
from klamm.model import TopicPartition
from klamm.producer import ProducerConfig
from klamm.producer.accumulator import NEVER_MS, Accumulator, Drained, PartitionQueue
from klamm.producer.batch import Batch
from klamm.producer.result import BatchResult
from klamm.producer.user_calls import UserCalls
from klamm.records import HEADER_SIZE_BYTES

ERROR = EXCEPTIONS[ErrorCode.NOT_ENOUGH_REPLICAS]("too few")
RECORD_BYTES = 100
NO_LEADER = TopicPartition("leaderless", 0)


class Harness:
    """An accumulator whose batches hold ten records of 100 bytes. Broker p leads partition p."""

    def __init__(self, **settings: Any) -> None:
        settings = {
            "batch_size": HEADER_SIZE_BYTES + 10 * RECORD_BYTES,
            "linger_ms": 5,
            "delivery_timeout_ms": 1_000,
            "request_timeout_ms": 500,
            **settings,
        }
        self.wake_ups = 0
        self.accumulator = Accumulator(ProducerConfig.parse(settings), self._count_wake_up, UserCalls())
        self.queues: dict[TopicPartition, PartitionQueue] = {}

    def _count_wake_up(self) -> None:
        self.wake_ups += 1

    def queue(self, partition: int = 0, topic: str = "t") -> PartitionQueue:
        tp = TopicPartition(topic, partition)
        return self.queues.setdefault(tp, PartitionQueue(tp))

    def append(self, queue: PartitionQueue, count: int = 1, now_ms: int = 0, size_bytes: int = RECORD_BYTES) -> int:
        """Appends records. Returns how many of them found space."""
        for done in range(count):
            record = (now_ms, None, b"", ())
            if self.accumulator.append(queue, record, size_bytes, None) is not None:
                continue
            if not self.accumulator.open_batch(queue, size_bytes, now_ms):
                return done
            assert self.accumulator.append(queue, record, size_bytes, None) is not None
        return count

    def drain(self, now_ms: int = 0, in_flight: dict[int, int] | None = None, limit: int = 5) -> Drained:
        drained = self.accumulator.drain(
            lambda tp: None if tp == NO_LEADER else tp.partition, in_flight or {}, limit, now_ms
        )
        self.accumulator.check_invariants()
        return drained

    def batches(self, drained: Drained) -> dict[int, list[int]]:
        """Returns the number of records in each drained batch, by partition."""
        return {
            queue.tp.partition: [len(batch.records) for batch in batches]
            for request in drained.requests
            for queue, batches in request.parts
        }


def results(batches: list[Batch]) -> list[BatchResult]:
    return [batch.result for batch in batches]


def test_a_batch_is_sent_after_linger_ms() -> None:
    harness = Harness()
    harness.append(harness.queue(), 3, now_ms=100)

    waiting = harness.drain(104)
    assert (waiting.requests, waiting.next_due_ms) == ([], 105)
    assert harness.batches(harness.drain(105)) == {0: [3]}


def test_a_full_batch_is_sent_immediately_and_the_open_batch_after_it_waits() -> None:
    harness = Harness()
    harness.append(harness.queue(), 13, now_ms=100)

    assert harness.batches(harness.drain(100)) == {0: [10]}


def test_several_due_batches_of_a_partition_are_sent_in_one_request() -> None:
    harness = Harness()
    harness.append(harness.queue(), 25, now_ms=100)

    assert harness.batches(harness.drain(105)) == {0: [10, 10, 5]}


def test_a_record_larger_than_batch_size_gets_its_own_batch() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 1)
    harness.append(queue, 1, size_bytes=5_000)
    harness.append(queue, 1)

    assert harness.batches(harness.drain(5)) == {0: [1, 1, 1]}


def test_batch_size_zero_means_a_batch_per_record() -> None:
    harness = Harness(batch_size=0)
    harness.append(harness.queue(), 3)

    assert harness.batches(harness.drain(0)) == {0: [1, 1, 1]}


def test_partition_with_a_request_in_flight_waits_for_it() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 10)
    harness.drain()
    harness.append(queue, 20)

    assert harness.drain(100).requests == []
    harness.accumulator.complete(queue)
    assert harness.batches(harness.drain(100)) == {0: [10, 10]}


def test_a_request_is_bounded_by_max_request_size_and_the_rest_follows() -> None:
    harness = Harness(max_request_size=2_500)
    for partition in range(3):
        harness.append(harness.queue(partition), 10)
    everything_on_broker_0 = Accumulator.drain

    drained = everything_on_broker_0(harness.accumulator, lambda tp: 0, {}, 5, 0)
    again = everything_on_broker_0(harness.accumulator, lambda tp: 0, {0: 1}, 5, 0)

    assert (harness.batches(drained), harness.batches(again)) == ({0: [10], 1: [10]}, {2: [10]})


def test_partitions_take_turns_when_requests_are_full() -> None:
    harness = Harness(max_request_size=1_500)
    for partition in range(3):
        harness.append(harness.queue(partition), 30)

    order = []
    for _ in range(6):
        drained = harness.accumulator.drain(lambda tp: 0, {}, 5, 0)
        ((queue, _),) = drained.requests[0].parts
        harness.accumulator.complete(queue)
        order.append(queue.tp.partition)

    assert order == [0, 1, 2, 0, 1, 2]


def test_a_broker_at_its_in_flight_limit_gets_no_more_requests() -> None:
    harness = Harness()
    harness.append(harness.queue(0), 10)
    harness.append(harness.queue(1), 10)

    assert harness.batches(harness.drain(in_flight={0: 2}, limit=2)) == {1: [10]}


def test_partition_without_leader_is_reported_when_it_is_due() -> None:
    harness = Harness()
    harness.append(harness.queue(0, NO_LEADER.topic), 1, now_ms=100)

    assert harness.drain(104).leaderless == set()
    assert harness.drain(105).leaderless == {NO_LEADER.topic}


def test_retried_batches_are_sent_first_and_after_the_backoff() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 20)
    first = harness.drain().requests[0].parts[0][1]
    harness.append(queue, 10)

    assert harness.accumulator.retry(queue, ERROR, retry_at_ms=50, retries_max=9) == []

    assert harness.drain(49).next_due_ms == 50
    again = harness.drain(50).requests[0].parts[0][1]
    assert again[:2] == first
    assert [batch.attempts for batch in again] == [2, 2, 1]
    assert [batch.last_error for batch in again] == [ERROR, ERROR, None]


def test_a_new_leader_ends_the_backoff_of_partitions_that_await_a_leader() -> None:
    harness = Harness()
    found, unknown, busy = (harness.queue(partition) for partition in range(3))
    for queue in (found, unknown, busy):
        harness.append(queue, 10)
    harness.drain()
    for queue in (found, unknown, busy):
        harness.accumulator.retry(queue, ERROR, retry_at_ms=50, retries_max=9, awaits_leader=queue is not busy)

    harness.accumulator.end_backoff(lambda queue: queue is not unknown)

    assert harness.batches(harness.drain(10)) == {0: [10]}
    assert harness.batches(harness.drain(50)) == {1: [10], 2: [10]}


def test_topics_await_a_leader_from_the_failure_until_the_retry() -> None:
    harness = Harness()
    failed, busy = harness.queue(0, "failed"), harness.queue(1, "busy")
    for queue in (failed, busy):
        harness.append(queue, 10)
    harness.drain()
    assert harness.accumulator.topics_awaiting_leader() == set()

    for queue in (failed, busy):
        harness.accumulator.retry(queue, ERROR, retry_at_ms=50, retries_max=9, awaits_leader=queue is failed)
    assert harness.accumulator.topics_awaiting_leader() == {"failed"}

    harness.drain(50)
    assert harness.accumulator.topics_awaiting_leader() == set()


def test_batches_that_exceed_retries_are_returned_as_failed() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 10)
    (batch,) = harness.drain().requests[0].parts[0][1]
    assert harness.accumulator.retry(queue, ERROR, retry_at_ms=0, retries_max=1) == []
    harness.append(queue, 10)
    _, fresh = harness.drain().requests[0].parts[0][1]

    assert harness.accumulator.retry(queue, ERROR, retry_at_ms=0, retries_max=1) == [batch]
    assert list(queue.batches) == [fresh]
    harness.accumulator.check_invariants()


def test_a_too_large_request_is_retried_batch_by_batch_until_one_succeeds() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 30)
    harness.drain()

    assert harness.accumulator.split(queue)

    assert harness.batches(harness.drain()) == {0: [10]}
    harness.accumulator.complete(queue)
    assert harness.batches(harness.drain()) == {0: [10, 10]}


def test_a_too_large_batch_is_retried_in_halves() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 5)
    harness.drain(5)

    assert harness.accumulator.split(queue)
    harness.accumulator.check_invariants()

    assert harness.batches(harness.drain(5)) == {0: [2, 3]}
    halves = harness.accumulator.complete(queue)
    assert halves[0].result is halves[1].result
    assert [batch.start for batch in halves] == [0, 2]


def test_single_record_cannot_be_split() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 1)
    harness.drain(5)

    assert not harness.accumulator.split(queue)
    assert len(harness.accumulator.complete(queue)) == 1


def test_a_batch_uses_buffer_memory_until_it_completes() -> None:
    harness = Harness(buffer_memory=3_000)
    queue = harness.queue()
    assert harness.append(queue, 100) == 28, "two batches of 1,061 bytes fit, and one of 861"

    assert harness.append(queue, 1) == 0
    harness.drain()
    assert harness.append(queue, 1) == 0, "in flight it is still in memory"
    harness.accumulator.complete(queue)
    assert harness.accumulator.available_bytes == 3_000
    assert harness.append(queue, 1) == 1


def test_a_closed_batch_releases_its_unused_buffer_memory() -> None:
    harness = Harness(buffer_memory=3_000)
    queue = harness.queue()
    harness.append(queue, 2)
    assert harness.accumulator.available_bytes == 3_000 - (HEADER_SIZE_BYTES + 10 * RECORD_BYTES)

    harness.accumulator.flush()

    assert harness.accumulator.available_bytes == 3_000 - (HEADER_SIZE_BYTES + 2 * RECORD_BYTES)


def test_an_open_batch_reserves_memory_in_steps() -> None:
    """A hundred open batches would otherwise use up buffer.memory with almost nothing in them."""
    harness = Harness(batch_size=1_000_000, linger_ms=400)

    for partition in range(100):
        harness.append(harness.queue(partition), 2)

    held_bytes = harness.accumulator.buffer_bytes - harness.accumulator.available_bytes
    assert held_bytes <= 100 * (16_384 + HEADER_SIZE_BYTES + RECORD_BYTES)
    harness.accumulator.check_invariants()


def test_an_open_batch_uses_the_rest_of_the_memory() -> None:
    harness = Harness(batch_size=1_000_000, buffer_memory=20_000)
    queue = harness.queue()

    assert harness.append(queue, 1_000) == (20_000 - HEADER_SIZE_BYTES) // RECORD_BYTES

    assert len(queue.batches) == 1
    harness.accumulator.check_invariants()


def test_a_batch_is_not_larger_than_a_request() -> None:
    harness = Harness(batch_size=1_000_000, max_request_size=2_000)
    harness.append(harness.queue(), 40)

    assert harness.batches(harness.drain()) == {0: [19]}


def test_batches_of_a_topic_stay_below_the_size_that_it_refused() -> None:
    harness = Harness(batch_size=1_000_000)
    queue, other = harness.queue(), harness.queue(1)
    harness.append(queue, 40)
    harness.drain(5)

    assert harness.accumulator.split(queue)

    harness.append(other, 40)
    assert harness.batches(harness.drain(5)) == {0: [20, 20], 1: [19, 19, 2]}


def test_all_batches_are_due_while_a_sender_waits_for_memory() -> None:
    harness = Harness(linger_ms=400)
    harness.append(harness.queue(), 1)
    assert harness.drain().requests == []

    harness.accumulator.waiters.add("a send")

    assert harness.batches(harness.drain()) == {0: [1]}


def test_flush_makes_all_batches_due_and_returns_the_unfinished_results() -> None:
    harness = Harness(linger_ms=400)
    sent, waiting = harness.queue(0), harness.queue(1)
    harness.append(sent, 10)
    in_flight = harness.drain().requests[0].parts[0][1]
    harness.append(waiting, 2)
    (still_open,) = waiting.batches

    assert harness.accumulator.flush() == results([*in_flight, still_open])
    assert harness.batches(harness.drain()) == {1: [2]}


def test_queued_batches_expire_oldest_first() -> None:
    harness = Harness(linger_ms=400)
    queue = harness.queue()
    harness.append(queue, 10, now_ms=0)
    harness.append(queue, 1, now_ms=600)
    old, young = queue.batches

    assert harness.accumulator.expire(999) == []
    assert harness.accumulator.expire(1_000) == [old]
    harness.accumulator.check_invariants()
    assert harness.accumulator.expire(1_599) == []
    assert harness.accumulator.expire(1_600) == [young]
    assert harness.accumulator.is_empty
    assert harness.accumulator.available_bytes == harness.accumulator.buffer_bytes


def test_a_batch_in_flight_expires_once_and_blocks_its_partition_until_the_request_ends() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 10, now_ms=0)
    (batch,) = harness.drain().requests[0].parts[0][1]

    assert harness.accumulator.expire(1_000) == [batch]
    assert harness.accumulator.expire(5_000) == []
    harness.append(queue, 10, now_ms=5_000)
    assert harness.drain(5_000).requests == [], "the request may still be appended"

    assert harness.accumulator.retry(queue, ERROR, retry_at_ms=5_000, retries_max=9) == []
    assert harness.batches(harness.drain(5_000)) == {0: [10]}
    assert batch not in queue.in_flight


def test_next_wake_up_is_no_later_than_the_next_expiry() -> None:
    harness = Harness()
    harness.append(harness.queue(), 10, now_ms=100)

    assert harness.drain(100).next_due_ms == 1_100
    assert harness.accumulator.drain(lambda tp: 0, {}, 5, 100).next_due_ms == 1_100


def test_an_empty_accumulator_has_no_deadline() -> None:
    harness = Harness()
    assert harness.drain().next_due_ms == NEVER_MS


def test_the_delivery_timeout_error_of_an_unsent_batch_says_never_sent() -> None:
    harness = Harness()
    harness.append(harness.queue(), 1)

    (expired,) = harness.accumulator.expire(1_000)
    text = str(harness.accumulator.delivery_timeout(expired))

    assert "delivery.timeout.ms=1000" in text
    assert "never sent" in text


def test_the_delivery_timeout_error_names_the_attempts_and_the_last_error() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 10)
    harness.drain()
    harness.accumulator.retry(queue, ERROR, retry_at_ms=0, retries_max=9)
    (expired,) = harness.accumulator.expire(1_000)

    text = str(harness.accumulator.delivery_timeout(expired))

    assert text.startswith("10 record(s) of t-0 were not acknowledged within delivery.timeout.ms=1000 (1 attempt")
    assert "too few" in text


def test_the_sender_is_woken_only_for_a_batch_due_before_its_deadline() -> None:
    harness = Harness(linger_ms=5)
    harness.drain()

    harness.append(harness.queue(0), 1, now_ms=0)
    assert harness.wake_ups == 1, "it slept without a deadline"
    harness.append(harness.queue(1), 1, now_ms=0)
    assert harness.wake_ups == 1, "it wakes at 5 anyway"
    harness.append(harness.queue(0), 9, now_ms=0)
    assert harness.wake_ups == 2, "a batch is full"
    harness.append(harness.queue(1), 30, now_ms=0)
    assert harness.wake_ups == 2, "it is on its way"


def test_sender_is_not_woken_for_a_partition_in_flight() -> None:
    harness = Harness()
    queue = harness.queue()
    harness.append(queue, 10)
    harness.drain()
    harness.drain()
    wake_ups = harness.wake_ups

    harness.append(queue, 30)

    assert harness.wake_ups == wake_ups


def test_a_closed_accumulator_refuses_records_and_sends_its_batches() -> None:
    harness = Harness(linger_ms=400)
    queue = harness.queue()
    harness.append(queue, 1)

    harness.accumulator.close()

    with pytest.raises(IllegalStateError, match="closed"):
        harness.append(queue, 1)
    assert harness.batches(harness.drain()) == {0: [1]}


def test_abort_returns_the_queued_batches() -> None:
    harness = Harness()
    sent, waiting = harness.queue(0), harness.queue(1)
    harness.append(sent, 10)
    harness.drain()
    harness.append(sent, 1)
    harness.append(waiting, 1)

    assert [batch.tp.partition for batch in harness.accumulator.abort()] == [0, 1]
    assert not harness.accumulator.is_empty
    harness.accumulator.complete(sent)
    assert harness.accumulator.is_empty
    harness.accumulator.check_invariants()
