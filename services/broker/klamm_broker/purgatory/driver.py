"""Drives a purgatory with one timer of the event loop, set for the next deadline.

Only this module of the package uses asyncio and a clock. For any number of parked operations, there is one timer and no
task. An operation with an earlier deadline resets the timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from klamm.model import TopicPartition
from klamm_broker.purgatory.purgatory import Operation, Parked, Parker, Purgatory
from klamm_broker.purgatory.wake_ups import WakeUps
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.faults import fatal


class PurgatoryDriver:
    """A purgatory of at most `max_parked` operations of clients, and as many of servers, on the running event loop.
    `close` stops its timer."""

    def __init__(self, *, max_parked: int, clock: Clock) -> None:
        self._clock = clock
        self._purgatory = Purgatory(max_parked=max_parked, start_ms=clock.monotonic_ms())
        self._wake_ups = WakeUps()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self.check_and_complete = self._purgatory.check_and_complete

    def __len__(self) -> int:
        """Returns the number of parked operations."""
        return len(self._purgatory)

    def refused_count(self) -> int:
        """Returns the number of operations that could not wait."""
        return self._purgatory.refused_count

    async def wait(
        self,
        make_operation: Callable[[Callable[[], None]], Operation],
        keys: Iterable[TopicPartition],
        wait_ms: int,
        parker: Parker,
    ) -> bool:
        """Waits until the operation completes, or for `wait_ms`. It takes a little longer if many operations complete
        together. Returns False at once if the parker's user has no place to wait.

        `make_operation` gets the callback that the operation must call when it has completed or expired."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        operation = make_operation(lambda: self._wake_ups.wake(done))
        if operation.try_complete():
            return True
        parked = self._park(operation, keys, wait_ms, parker)
        if parked is None:
            return False
        try:
            await done
        finally:
            self._purgatory.cancel(parked)
        return True

    def _park(
        self, operation: Operation, keys: Iterable[TopicPartition], wait_ms: int, parker: Parker
    ) -> Parked | None:
        now_ms = self._clock.monotonic_ms()
        if not len(self._purgatory):
            # Nothing advanced the wheel while it was empty, so its clock may be arbitrarily old.
            self._purgatory.advance(now_ms)
        parked = self._purgatory.park(operation, keys, now_ms + wait_ms, parker)
        if parked is not None:
            self._arm(now_ms)
        return parked

    def close(self) -> None:
        """Stops the timer. Operations no longer expire. Called after the last RPC."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, now_ms: int) -> None:
        deadline_ms = self._purgatory.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._armed_ms <= deadline_ms):
            return
        self.close()
        self._armed_ms = deadline_ms
        delay_s = max(0, deadline_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        try:
            self._purgatory.advance(now_ms)
            self._arm(now_ms)
        except Exception as error:  # noqa: BLE001 - a driver that dies silently would park requests for ever
            fatal("the purgatory's timer failed", error)
