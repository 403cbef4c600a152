"""An event queue that owns state: all code that reads or changes the state runs here, one event after the other.

Kafka's KafkaEventQueue on an event loop. A handler is a plain function, so it cannot await between looking and
changing. Order of the events that are ready: scheduled ones whose deadline has come (earliest first), urgent
ones in order of arrival, all others in order of arrival.

A handler's exception goes to the caller that awaits its future. Two kinds end `run` as well, which its owner treats as
fatal (faults.watch): an AssertionError, because the state can no longer be trusted, and anything a scheduled
handler raises, because nobody else would see it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from klamm.errors import IllegalStateError, KlammError
from klamm_server.runtime.clock import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")

Observer = Callable[[int, int], None]
"""Called after every handled event with (ms that it waited, ms of its handler)."""

TURN_MS = 5
"""The time in ms after which events yield to the event loop, because streams, heartbeats and disk threads wait for
it.
"""
SLOW_HANDLER_MS = 1_000
"""Slower handlers are logged by name, because all other events waited for them."""


class QueueFullError(KlammError):
    """The queue is full and did not accept the event. The caller may try again later."""

    retriable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    name: str
    handler: Callable[[], Any]
    ready_ms: int
    """The time from which the event could have been handled."""
    future: asyncio.Future[Any] | None


class EventQueue:
    """A bounded queue with one consumer, `run`.

    `capacity` bounds the ordinary events and, apart from them, the urgent ones, so that a flood of the former
    cannot refuse the latter. After `events_per_turn` events, or TURN_MS, the loop gets a turn. Not thread-safe."""

    def __init__(
        self,
        name: str,
        *,
        capacity: int,
        clock: Clock,
        events_per_turn: int = 64,
        on_handled: Observer | None = None,
    ) -> None:
        assert capacity > 0, capacity
        assert events_per_turn > 0, events_per_turn
        self.name = name
        self._capacity = capacity
        self._clock = clock
        self._events_per_turn = events_per_turn
        self._on_handled = on_handled
        self._urgent: deque[_Event] = deque()
        self._ordinary: deque[_Event] = deque()
        self._schedule = _Schedule()
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Returns the number of waiting events, without scheduled ones."""
        return len(self._urgent) + len(self._ordinary)

    def append(self, name: str, handler: Callable[[], T]) -> asyncio.Future[T]:
        """Adds an event after all waiting ones. The future gets the handler's result or exception.

        If the future is cancelled before its turn, the event is dropped. Raises QueueFullError at capacity, and
        IllegalStateError after `close`."""
        return self._enqueue(self._ordinary, name, handler)

    def prepend(self, name: str, handler: Callable[[], T]) -> asyncio.Future[T]:
        """Adds an event before all appended ones, and after those that were prepended before. Heartbeats use it."""
        return self._enqueue(self._urgent, name, handler)

    def schedule(self, tag: str, deadline_ms: int, handler: Callable[[], None]) -> None:
        """Schedules an event for the monotonic time `deadline_ms`. It replaces a scheduled event with the same tag."""
        if self._closed:
            return
        self._schedule.put(tag, deadline_ms, handler)
        self._wake.set()

    def cancel(self, tag: str) -> None:
        """Removes the scheduled event with that tag, if there is one."""
        self._schedule.remove(tag)

    def close(self) -> None:
        """Refuses further events. `run` then handles the waiting events, drops the scheduled ones, and returns."""
        self._closed = True
        self._schedule = _Schedule()
        self._wake.set()

    async def run(self) -> None:
        """Handles events until `close`. It ends earlier only after a broken invariant (see the module)."""
        while True:
            delay_ms = self.turn()
            if delay_ms == 0:
                await asyncio.sleep(0)
            elif delay_ms is None and self._closed:
                return
            else:
                await self._wait(delay_ms)

    def turn(self) -> int | None:
        """Handles the events that are ready, at most `events_per_turn`. Begins none after TURN_MS.

        Returns the ms until the next event: 0 if an event waits now, None if none is known."""
        until_ms = self._clock.monotonic_ms() + TURN_MS
        for _ in range(self._events_per_turn):
            event = self._next()
            if event is None:
                break
            self._handle(event)
            if self._clock.monotonic_ms() >= until_ms:
                break
        if len(self):
            return 0
        deadline_ms = self._schedule.first_deadline_ms()
        return None if deadline_ms is None else max(0, deadline_ms - self._clock.monotonic_ms())

    def _enqueue(self, queue: deque[_Event], name: str, handler: Callable[[], T]) -> asyncio.Future[T]:
        if self._closed:
            raise IllegalStateError(f"the {self.name} queue is closed: {name} was refused")
        if len(queue) >= self._capacity:
            raise QueueFullError(f"the {self.name} queue is full ({self._capacity} events): {name} was refused")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        queue.append(_Event(name=name, handler=handler, ready_ms=self._clock.monotonic_ms(), future=future))
        self._wake.set()
        return future

    def _next(self) -> _Event | None:
        scheduled = self._schedule.pop_due(self._clock.monotonic_ms())
        if scheduled is not None:
            return scheduled
        if self._urgent:
            return self._urgent.popleft()
        return self._ordinary.popleft() if self._ordinary else None

    def _handle(self, event: _Event) -> None:
        if event.future is not None and event.future.cancelled():
            return
        start_ms = self._clock.monotonic_ms()
        try:
            result = event.handler()
        except Exception as error:
            if event.future is None:
                raise
            event.future.set_exception(error)
            if isinstance(error, AssertionError):
                raise
        else:
            if event.future is not None:
                event.future.set_result(result)
        self._observe(event, start_ms)

    def _observe(self, event: _Event, start_ms: int) -> None:
        took_ms = self._clock.monotonic_ms() - start_ms
        if took_ms >= SLOW_HANDLER_MS:
            log.warning("an event was slow, queue=%s event=%s took_ms=%d", self.name, event.name, took_ms)
        if self._on_handled is not None:
            self._on_handled(start_ms - event.ready_ms, took_ms)

    async def _wait(self, delay_ms: int | None) -> None:
        self._wake.clear()
        timer = None
        if delay_ms is not None:
            timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()


class _Schedule:
    """Scheduled events by deadline, at most one for each tag.

    Replaced and removed entries stay in the heap until they reach its top, or until they outnumber the others."""

    def __init__(self) -> None:
        self._live: dict[str, tuple[int, int, Callable[[], None]]] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._sequence = itertools.count()

    def put(self, tag: str, deadline_ms: int, handler: Callable[[], None]) -> None:
        sequence = next(self._sequence)
        self._live[tag] = (deadline_ms, sequence, handler)
        heapq.heappush(self._heap, (deadline_ms, sequence, tag))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(deadline, order, tag) for tag, (deadline, order, _) in self._live.items()]
            heapq.heapify(self._heap)

    def remove(self, tag: str) -> None:
        self._live.pop(tag, None)

    def first_deadline_ms(self) -> int | None:
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> _Event | None:
        deadline_ms = self.first_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        _, _, tag = heapq.heappop(self._heap)
        _, _, handler = self._live.pop(tag)
        return _Event(name=tag, handler=handler, ready_ms=deadline_ms, future=None)

    def _is_live(self, entry: tuple[int, int, str]) -> bool:
        live = self._live.get(entry[2])
        return live is not None and live[1] == entry[1]
