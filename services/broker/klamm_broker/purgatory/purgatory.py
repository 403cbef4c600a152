"""The purgatory: operations that wait for a partition to change, or for their deadline.

Kafka's `DelayedOperationPurgatory`. An operation watches the partitions it depends on. Code that changes a partition
calls `check_and_complete` for it, which asks the operations watching it whether they are done now. At its deadline, an
operation has to complete with the results it has. An operation completes itself: it sets the future that its RPC waits
for. No task sleeps here.

Pure: time is an argument, and everything happens on the caller's thread. Kafka's watcher lists keep completed
operations until a reaper purges them. Here, an operation that completes leaves every list. So the watched operations
are exactly the parked ones, and `max_parked` bounds both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from klamm.model import TopicPartition
from klamm_broker.purgatory.timing_wheel import Timer, TimingWheel


class Operation(Protocol):
    """Something that waits."""

    def try_complete(self) -> bool:
        """Completes the operation if possible, and returns whether it did. It is called again after every change of a
        watched partition."""

    def on_expiration(self) -> None:
        """The deadline came first: completes with what there is."""


class Parked:
    """An operation in the purgatory; what `cancel` takes."""

    __slots__ = ("keys", "operation", "timer")

    def __init__(self, operation: Operation, keys: tuple[TopicPartition, ...]) -> None:
        self.operation = operation
        self.keys = keys
        self.timer: Timer[Parked] | None = None


class Purgatory:
    """Operations that wait, at most `max_parked` of them.

    Invariant: an operation is watched under each of its keys and has a timer as long as it is parked, and
    under none and without one otherwise."""

    def __init__(self, *, max_parked: int, start_ms: int) -> None:
        self._max_parked = max_parked
        self._wheel: TimingWheel[Parked] = TimingWheel(start_ms=start_ms)
        self._watchers: dict[TopicPartition, dict[Parked, None]] = {}

    def __len__(self) -> int:
        """Operations parked."""
        return len(self._wheel)

    @property
    def is_full(self) -> bool:
        """Whether `park` would be refused; the caller then answers at once."""
        return len(self._wheel) >= self._max_parked

    def park(self, operation: Operation, keys: Iterable[TopicPartition], deadline_ms: int) -> Parked:
        """Watches `keys` for an operation that cannot complete yet. The caller has looked at `is_full`."""
        assert not self.is_full, (len(self), self._max_parked)
        parked = Parked(operation, tuple(dict.fromkeys(keys)))
        for key in parked.keys:
            self._watchers.setdefault(key, {})[parked] = None
        parked.timer = self._wheel.schedule(deadline_ms, parked)
        return parked

    def cancel(self, parked: Parked) -> bool:
        """Takes an operation out without completing it; False when it is out already."""
        if parked.timer is None:
            return False
        self._wheel.cancel(parked.timer)
        self._unwatch(parked)
        return True

    def check_and_complete(self, key: TopicPartition) -> int:
        """Asks the operations watching `key`, in the order they came; returns how many completed."""
        watching = self._watchers.get(key)
        if watching is None:
            return 0
        completed = [parked for parked in tuple(watching) if parked.operation.try_complete()]
        for parked in completed:
            self.cancel(parked)
        return len(completed)

    def next_deadline_ms(self) -> int | None:
        """When `advance` has to be called next."""
        return self._wheel.next_deadline_ms()

    def advance(self, now_ms: int) -> int:
        """Expires what is due; returns how many operations that were."""
        expired = self._wheel.advance(now_ms)
        for parked in expired:
            self._unwatch(parked)
            parked.operation.on_expiration()
        return len(expired)

    def _unwatch(self, parked: Parked) -> None:
        parked.timer = None
        for key in parked.keys:
            watching = self._watchers[key]
            del watching[parked]
            if not watching:
                del self._watchers[key]

    def check_invariants(self) -> None:
        """Raises AssertionError; for tests."""
        self._wheel.check_invariants()
        watched = {parked for watching in self._watchers.values() for parked in watching}
        assert all(watching for watching in self._watchers.values())
        assert all(parked in self._watchers[key] for parked in watched for key in parked.keys)
        assert all(parked.timer is not None for parked in watched)
        assert len(watched) <= len(self._wheel) <= self._max_parked
