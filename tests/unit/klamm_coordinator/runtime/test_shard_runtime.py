"""Tests the runtime under rules that are neither of groups nor of transactions (see `counter_shard`)."""

from __future__ import annotations

import random

import pytest

from klamm.errors import ErrorCode
from klamm.records import encode_batch, read_header
from klamm_coordinator.runtime.effects import ShardEffects
from klamm_coordinator.runtime.events import TimePassed, WriteAppended, WriteFailed
from klamm_coordinator.runtime.settings import ShardSettings
from klamm_coordinator.runtime.shard_runtime import ShardRuntime
from klamm_coordinator.runtime.timers import Now
from tests.support.counter_shard import (
    FORGOTTEN_AFTER_MS,
    WRITE_TIMEOUT_MS,
    Add,
    CounterRecord,
    CounterRules,
    Ring,
    Total,
    encode,
)


class Shard:
    """A shard of counters on a clock that the test moves. Checks every invariant after every step."""

    def __init__(self, *stored: CounterRecord, pending_writes_max: int = 100) -> None:
        self.runtime = ShardRuntime(
            CounterRules(), ShardSettings(pending_writes_max=pending_writes_max), random.Random(1)
        )
        self.replayer = self.runtime.rules.replayer()
        self.now_ms = 0
        if stored:
            self.load(*(encode(record) for record in stored))
        self.runtime.start(self.now)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def load(self, *entries: tuple[bytes, bytes | None]) -> None:
        batch = encode_batch([(0, key, value, ()) for key, value in entries])
        self.replayer.replay_batch(batch, 0, read_header(batch))

    def step(self, event: object) -> ShardEffects[CounterRecord]:
        effects = self.runtime.step(event, self.now)
        self.runtime.check_invariants()
        return effects

    def add(self, reply_id: int, name: str, amount: int) -> ShardEffects[CounterRecord]:
        return self.step(Add(reply_id=reply_id, name=name, amount=amount))

    def ack(self, write_id: int) -> ShardEffects[CounterRecord]:
        return self.step(WriteAppended(write_id=write_id))

    def nack(self, write_id: int) -> ShardEffects[CounterRecord]:
        return self.step(WriteFailed(write_id=write_id, error=ErrorCode.NOT_ENOUGH_REPLICAS))

    def pass_time(self, duration_ms: int) -> ShardEffects[CounterRecord]:
        self.now_ms += duration_ms
        return self.step(TimePassed())


def test_an_answer_is_parked_until_its_records_are_acknowledged():
    shard = Shard()

    asked = shard.add(1, "a", 5)

    assert [write.records for write in asked.writes] == [(CounterRecord("a", 5),)]
    assert asked.replies == []
    assert shard.runtime.rules.totals == {}
    assert shard.ack(0).replies == [(1, Total(total=5))]
    assert shard.runtime.rules.totals == {"a": 5}


def test_a_failed_write_changes_nothing():
    shard = Shard()
    shard.add(1, "a", 5)

    assert shard.nack(0).replies == [(1, Total(error=ErrorCode.NOT_ENOUGH_REPLICAS))]
    assert shard.runtime.rules.totals == {}


def test_requests_that_wait_for_a_write_continue_after_it():
    shard = Shard()
    shard.add(1, "a", 5)
    assert shard.add(2, "a", 6).writes == shard.add(3, "a", 7).writes == []
    assert shard.runtime.pending_write_count == 3

    (write,) = shard.ack(0).writes

    assert write.records == (CounterRecord("a", 18),)
    assert shard.ack(write.write_id).replies == [(2, Total(total=11)), (3, Total(total=18))]
    assert shard.runtime.pending_write_count == 0


def test_a_request_that_times_out_is_answered_once_and_its_write_stays_pending():
    shard = Shard()
    shard.add(1, "a", 5)
    assert shard.runtime.next_deadline_ms() == WRITE_TIMEOUT_MS

    assert shard.pass_time(WRITE_TIMEOUT_MS).replies == [(1, Total(error=ErrorCode.REQUEST_TIMED_OUT))]

    assert shard.runtime.pending_write_count == 1
    assert shard.ack(0).replies == []
    assert shard.runtime.rules.totals == {"a": 5}


def test_writes_must_be_acknowledged_in_order():
    shard = Shard()
    shard.add(1, "a", 5)
    shard.add(2, "b", 6)

    with pytest.raises(AssertionError):
        shard.ack(1)


def test_above_pending_writes_max_only_requests_without_a_write_are_accepted():
    shard = Shard(pending_writes_max=1)
    assert shard.runtime.takes(Add(reply_id=1, name="a", amount=1))
    shard.add(1, "a", 1)

    assert not shard.runtime.takes(Add(reply_id=2, name="b", amount=1))
    assert shard.runtime.takes(Add(reply_id=2, name="b", amount=0))


def test_a_loaded_shard_continues_from_the_state_of_its_log():
    shard = Shard(CounterRecord("a", 5), CounterRecord("b", 1), CounterRecord("a", 8), CounterRecord("b", None))

    assert shard.runtime.rules.totals == {"a": 8}
    shard.add(1, "a", 2)
    assert shard.ack(0).replies == [(1, Total(total=10))]


def test_records_that_the_rules_do_not_know_are_skipped_and_counted():
    shard = Shard()

    shard.load((b"?", b"1"), encode(CounterRecord("a", 5)))

    assert shard.replayer.skipped_count == 1
    assert shard.runtime.rules.totals == {"a": 5}


def test_a_timer_may_write_and_run_a_follow_up_after_the_write():
    shard = Shard(CounterRecord("a", 5))

    (write,) = shard.pass_time(FORGOTTEN_AFTER_MS).writes

    assert write.records == (CounterRecord("a", None),)
    assert shard.ack(write.write_id).notes == ["counter=a forgotten error=NONE"]
    assert shard.runtime.rules.totals == {}
    assert shard.runtime.next_deadline_ms() is None


def test_the_follow_up_of_a_write_runs_once():
    shard = Shard(CounterRecord("a", 5))
    shard.pass_time(FORGOTTEN_AFTER_MS)

    assert shard.pass_time(WRITE_TIMEOUT_MS).notes == ["counter=a forgotten error=REQUEST_TIMED_OUT"]
    assert shard.nack(0).notes == []


def test_an_event_is_handled_before_a_timer_of_the_same_moment():
    shard = Shard(CounterRecord("a", 5))
    shard.now_ms = FORGOTTEN_AFTER_MS

    (write,) = shard.add(1, "a", 1).writes

    assert write.records == (CounterRecord("a", 6),)


def test_orders_of_the_rules_are_returned_as_effects():
    shard = Shard(CounterRecord("a", 99))

    assert shard.add(1, "a", 1).orders == []
    assert shard.ack(0).orders == [Ring("a")]
