"""Deadlines as data: the core sets the deadlines, and the shell sleeps until the next one.

Heartbeats move deadlines thousands of times a second. The heap entry of a deadline that moves to a later time stays in
place, and is corrected when it reaches the top.

Invariant: every scheduled key has a heap entry at or before its deadline.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Now:
    """The time of a step, on the monotonic clock and on the wall clock."""

    monotonic_ms: int
    """The monotonic time of the step in ms, for deadlines."""
    wall_ms: int
    """The wall clock's time in ms since the epoch, for timestamps that are stored."""


class Timers(Generic[KeyT]):
    """Timers, with one deadline for each key."""

    __slots__ = ("_deadlines", "_heap", "_sequence")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, int] = {}
        self._heap: list[tuple[int, int, KeyT]] = []
        self._sequence = 0

    def __contains__(self, key: KeyT) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, key: KeyT, deadline_ms: int) -> None:
        """Sets or moves the deadline of `key`, on the monotonic clock."""
        former_ms = self._deadlines.get(key)
        self._deadlines[key] = deadline_ms
        if former_ms is None or deadline_ms < former_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: KeyT) -> None:
        """Removes the deadline of `key`, if it has one."""
        self._deadlines.pop(key, None)

    def next_deadline_ms(self) -> int | None:
        """Returns the earliest deadline in ms on the monotonic clock, or None if no timer is set."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Iterator[KeyT]:
        """Removes and yields the due timers in order of time, including timers that become due during the iteration."""
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= now_ms:
            _, _, key = heapq.heappop(self._heap)
            del self._deadlines[key]
            yield key

    def _settle(self) -> None:
        """Corrects the top of the heap: drops cancelled entries, and pushes moved ones again with their new
        deadline."""
        while self._heap:
            pushed_ms, _, key = self._heap[0]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms == pushed_ms:
                return
            heapq.heappop(self._heap)
            if deadline_ms is not None and deadline_ms > pushed_ms:
                self._push(key, deadline_ms)

    def _push(self, key: KeyT, deadline_ms: int) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (deadline_ms, self._sequence, key))
