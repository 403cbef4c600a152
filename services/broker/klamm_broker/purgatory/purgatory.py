"""The purgatory: operations that wait for a partition to change, or for their deadline.

Kafka's `DelayedOperationPurgatory`. An operation watches the partitions it depends on. Code that changes a partition
calls `check_and_complete` for it, which checks the operations that watch it. At its deadline, an operation must
complete with the results it has. An operation completes itself: it sets the future that its RPC waits for. No task
sleeps here.

Pure: time is an argument, and everything happens on the caller's thread. Kafka's watcher lists keep completed
operations until a reaper purges them. Here, an operation that completes leaves every list. So the watched operations
are exactly the parked ones, and `max_parked` bounds both. Each user has a share of the places (`place_shares.py`).
Requests of servers have as many places of their own, so that clients cannot keep them out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from klamm.model import TopicPartition
from klamm_broker.purgatory.timing_wheel import Timer, TimingWheel
from klamm_server.runtime.place_shares import PlaceShares


class Parker(NamedTuple):
    """The sender of a request that waits."""

    user: str
    """The user whose share the request takes a place of."""
    is_server: bool = False
    """True if another server sent the request for itself."""


class Operation(Protocol):
    """An operation that waits for partitions to change."""

    def try_complete(self) -> bool:
        """Completes the operation if possible, and returns whether it did. It is called again after every change of a
        watched partition."""

    def on_expiration(self) -> None:
        """Completes the operation with the results it has, because its deadline has come."""


class Parked:
    """A handle of an operation in the purgatory, for `cancel`."""

    __slots__ = ("keys", "operation", "parker", "timer")

    def __init__(self, operation: Operation, keys: tuple[TopicPartition, ...], parker: Parker) -> None:
        self.operation = operation
        self.parker = parker
        self.keys = keys
        self.timer: Timer[Parked] | None = None


class Purgatory:
    """Waiting operations, at most `max_parked` of clients and `max_parked` of servers.

    Invariant: while an operation is parked, it is watched under each of its keys, has a timer and takes a place.
    Otherwise it does none of this."""

    def __init__(self, *, max_parked: int, start_ms: int) -> None:
        self._clients = PlaceShares(max_parked)
        self._servers = PlaceShares(max_parked)
        self._wheel: TimingWheel[Parked] = TimingWheel(start_ms=start_ms)
        self._watchers: dict[TopicPartition, dict[Parked, None]] = {}

    def __len__(self) -> int:
        """Returns the number of parked operations."""
        return len(self._wheel)

    @property
    def refused_count(self) -> int:
        """The number of operations that got no place."""
        return self._clients.refused_count + self._servers.refused_count

    def park(
        self, operation: Operation, keys: Iterable[TopicPartition], deadline_ms: int, parker: Parker
    ) -> Parked | None:
        """Parks an operation that cannot complete yet, and watches `keys` for it. Returns None if the parker's user has
        no place. The caller must then answer immediately."""
        if not self._places(parker).take(parker.user):
            return None
        parked = Parked(operation, tuple(dict.fromkeys(keys)), parker)
        for key in parked.keys:
            self._watchers.setdefault(key, {})[parked] = None
        parked.timer = self._wheel.schedule(deadline_ms, parked)
        return parked

    def cancel(self, parked: Parked) -> bool:
        """Removes an operation without completing it. Returns False if it is no longer parked."""
        if parked.timer is None:
            return False
        self._wheel.cancel(parked.timer)
        self._leave(parked)
        return True

    def check_and_complete(self, key: TopicPartition) -> int:
        """Checks the operations that watch `key`, in the order of their arrival. Returns how many completed."""
        watching = self._watchers.get(key)
        if watching is None:
            return 0
        completed = [parked for parked in tuple(watching) if parked.operation.try_complete()]
        for parked in completed:
            self.cancel(parked)
        return len(completed)

    def next_deadline_ms(self) -> int | None:
        """Returns the time when `advance` must be called next, or None."""
        return self._wheel.next_deadline_ms()

    def advance(self, now_ms: int) -> int:
        """Expires the operations that are due. Returns how many there were."""
        expired = self._wheel.advance(now_ms)
        for parked in expired:
            self._leave(parked)
            parked.operation.on_expiration()
        return len(expired)

    def _places(self, parker: Parker) -> PlaceShares:
        return self._servers if parker.is_server else self._clients

    def _leave(self, parked: Parked) -> None:
        parked.timer = None
        self._places(parked.parker).give_back(parked.parker.user)
        for key in parked.keys:
            watching = self._watchers[key]
            del watching[parked]
            if not watching:
                del self._watchers[key]

    def check_invariants(self) -> None:
        """Asserts the invariant, for tests."""
        self._clients.check_invariants()
        self._servers.check_invariants()
        self._wheel.check_invariants()
        watched = {parked for watching in self._watchers.values() for parked in watching}
        assert all(watching for watching in self._watchers.values())
        assert all(parked in self._watchers[key] for parked in watched for key in parked.keys)
        assert all(parked.timer is not None for parked in watched)
        assert len(watched) <= len(self._wheel) == len(self._clients) + len(self._servers)
