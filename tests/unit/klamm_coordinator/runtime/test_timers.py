"""Tests timers against a naive implementation."""

from __future__ import annotations

import random

import pytest

from klamm_coordinator.runtime.timers import Timers


def test_due_timers_are_returned_in_order_of_time():
    timers: Timers[str] = Timers()
    timers.schedule("late", 30)
    timers.schedule("early", 10)
    timers.schedule("cancelled", 5)
    timers.cancel("cancelled")

    assert timers.next_deadline_ms() == 10
    assert list(timers.pop_due(29)) == ["early"]
    assert timers.next_deadline_ms() == 30
    assert list(timers.pop_due(30)) == ["late"]
    assert timers.next_deadline_ms() is None


def test_timers_scheduled_for_now_during_pop_due_are_due_too():
    timers: Timers[int] = Timers()
    timers.schedule(0, 5)
    seen = []
    for key in timers.pop_due(5):
        seen.append(key)
        if key < 3:
            timers.schedule(key + 1, 5)

    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_random_timer_steps_match_a_dict_of_deadlines(seed):
    rng = random.Random(seed)
    timers: Timers[int] = Timers()
    naive: dict[int, int] = {}
    now_ms = 0
    for _ in range(2_000):
        key = rng.randrange(20)
        match rng.randrange(4):
            case 0 | 1:
                naive[key] = now_ms + rng.randrange(50)
                timers.schedule(key, naive[key])
            case 2:
                naive.pop(key, None)
                timers.cancel(key)
            case 3:
                now_ms += rng.randrange(20)
                due_ms = [naive.pop(due) for due in timers.pop_due(now_ms)]
                assert due_ms == sorted(due_ms)
                assert all(deadline_ms <= now_ms for deadline_ms in due_ms)
        assert timers.next_deadline_ms() == min(naive.values(), default=None)
