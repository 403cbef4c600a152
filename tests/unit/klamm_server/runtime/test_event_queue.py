"""Tests the event queue turn by turn, under a clock that moves only when a test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from klamm.errors import IllegalStateError
from klamm_server.runtime.event_queue import TURN_MS, EventQueue, QueueFullError


class FakeClock:
    """A clock whose two times are both `now_ms`."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class World:
    """A queue whose events record their names."""

    def __init__(self, *, capacity: int = 100, events_per_turn: int = 100) -> None:
        self.clock = FakeClock()
        self.observed: list[tuple[int, int]] = []
        self.queue = EventQueue(
            "test",
            capacity=capacity,
            clock=self.clock,
            events_per_turn=events_per_turn,
            on_handled=lambda waited_ms, took_ms: self.observed.append((waited_ms, took_ms)),
        )
        self.handled: list[str] = []

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.handled.append(name)

    def append(self, name: str) -> asyncio.Future[None]:
        return self.queue.append(name, self.note(name))

    def prepend(self, name: str) -> asyncio.Future[None]:
        return self.queue.prepend(name, self.note(name))

    def schedule(self, tag: str, deadline_ms: int, name: str | None = None) -> None:
        self.queue.schedule(tag, deadline_ms, self.note(name or tag))


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a coroutine test in a loop of its own."""

    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 60))

    run.__name__ = test.__name__
    return run


@in_loop
async def test_due_events_run_first_then_urgent_then_ordinary_ones_in_order() -> None:
    world = World()
    world.append("a1")
    world.append("a2")
    world.prepend("u1")
    world.prepend("u2")
    world.schedule("late", 1_000)
    world.schedule("early", 999)
    world.schedule("future", 1_001)
    assert world.queue.turn() == 1
    assert world.handled == ["early", "late", "u1", "u2", "a1", "a2"]


@in_loop
async def test_events_of_one_deadline_keep_the_order_of_scheduling() -> None:
    world = World()
    for tag in "bac":
        world.schedule(tag, 1_000)
    world.queue.turn()
    assert world.handled == ["b", "a", "c"]


@in_loop
async def test_a_tag_is_scheduled_once_and_can_move_both_ways() -> None:
    world = World()
    world.schedule("t", 1_010, "first")
    world.schedule("t", 1_030, "later")
    world.schedule("s", 1_050, "s")
    world.schedule("s", 1_005, "sooner")
    assert world.queue.turn() == 5
    world.clock.now_ms = 1_010
    assert world.queue.turn() == 20
    assert world.handled == ["sooner"]
    world.clock.now_ms = 1_060
    assert world.queue.turn() is None
    assert world.handled == ["sooner", "later"]


@in_loop
async def test_a_cancelled_tag_never_fires_and_can_be_scheduled_again() -> None:
    world = World()
    world.schedule("t", 1_000)
    world.queue.cancel("t")
    world.queue.cancel("never scheduled")
    assert world.queue.turn() is None
    world.schedule("t", 1_000, "again")
    world.queue.turn()
    assert world.handled == ["again"]


@in_loop
async def test_rescheduling_without_end_does_not_grow_the_schedule() -> None:
    world = World()
    for deadline_ms in range(2_000, 12_000):
        world.schedule("session", deadline_ms)
    assert len(world.queue._schedule._heap) < 100
    world.clock.now_ms = 11_998
    world.queue.turn()
    assert world.handled == []
    world.clock.now_ms = 11_999
    world.queue.turn()
    assert world.handled == ["session"]


@in_loop
async def test_the_result_or_exception_of_an_event_goes_to_its_caller() -> None:
    world = World()
    good = world.queue.append("good", lambda: 7)
    bad = world.queue.append("bad", lambda: 1 // 0)
    after = world.append("after")
    world.queue.turn()
    assert await good == 7
    with pytest.raises(ZeroDivisionError):
        await bad
    await after


@in_loop
async def test_a_broken_invariant_reaches_the_caller_and_ends_the_run() -> None:
    world = World()

    def broken() -> None:
        raise AssertionError("high watermark 7 > end offset 5")

    future = world.queue.append("broken", broken)
    world.append("never")
    with pytest.raises(AssertionError):
        await world.queue.run()
    with pytest.raises(AssertionError, match="7 > end offset 5"):
        await future
    assert world.handled == []


@in_loop
async def test_an_exception_of_a_scheduled_event_ends_the_queue() -> None:
    world = World()

    def broken() -> None:
        raise ZeroDivisionError

    world.queue.schedule("t", 0, broken)
    with pytest.raises(ZeroDivisionError):
        await world.queue.run()


@in_loop
async def test_a_full_event_queue_refuses_ordinary_events_and_accepts_urgent_ones() -> None:
    world = World(capacity=2)
    world.append("a1")
    world.append("a2")
    with pytest.raises(QueueFullError, match=r"test queue is full \(2 events\): a3"):
        world.append("a3")
    world.prepend("u1")
    world.prepend("u2")
    with pytest.raises(QueueFullError):
        world.prepend("u3")
    assert len(world.queue) == 4
    world.queue.turn()
    world.append("a4")
    world.queue.turn()
    assert world.handled == ["u1", "u2", "a1", "a2", "a4"]


@in_loop
async def test_an_event_whose_caller_went_away_is_dropped() -> None:
    world = World()
    world.append("gone").cancel()
    world.append("here")
    world.queue.turn()
    assert world.handled == ["here"]


@in_loop
async def test_a_turn_handles_a_bounded_number_of_events_and_an_event_may_add_another() -> None:
    world = World(events_per_turn=2)
    for name in ("a", "b", "c"):
        world.append(name)
    assert world.queue.turn() == 0
    assert world.handled == ["a", "b"]
    world.queue.append("chain", lambda: world.append("d"))
    assert world.queue.turn() == 0
    assert world.queue.turn() is None
    assert world.handled == ["a", "b", "c", "d"]


@in_loop
async def test_waiting_and_handling_are_measured_by_the_clock() -> None:
    world = World()

    def slow() -> None:
        world.clock.now_ms += 30

    world.queue.append("slow", slow)
    world.append("behind it")
    world.schedule("timer", 1_040)
    world.clock.now_ms = 1_020
    while world.queue.turn() == 0:
        pass
    assert world.observed == [(20, 30), (10, 0), (50, 0)]


@in_loop
async def test_run_wakes_for_new_events_and_for_an_earlier_deadline() -> None:
    world = World()
    running = asyncio.create_task(world.queue.run())
    await asyncio.sleep(0)  # the queue has no deadline now, so it waits for an event
    await world.append("first")
    world.schedule("far", 10_000_000)
    await asyncio.sleep(0)
    world.schedule("due", world.clock.now_ms)
    await world.append("second")
    assert world.handled == ["first", "due", "second"]
    world.queue.close()
    await running


@in_loop
async def test_a_closed_queue_handles_waiting_events_drops_scheduled_ones_and_refuses_new_ones() -> None:
    world = World(events_per_turn=1)
    world.append("a")
    world.append("b")
    world.schedule("t", 2_000)
    world.queue.close()
    world.schedule("u", 0)
    with pytest.raises(IllegalStateError, match="queue is closed: c was refused"):
        world.append("c")
    await world.queue.run()
    assert world.handled == ["a", "b"]


@in_loop
async def test_a_turn_ends_after_a_slow_event_so_that_the_loop_can_run() -> None:
    world = World()

    def slow() -> None:
        world.clock.now_ms += TURN_MS

    world.queue.append("slow", slow)
    world.append("behind it")
    assert world.queue.turn() == 0
    assert len(world.queue) == 1
    assert world.queue.turn() is None
