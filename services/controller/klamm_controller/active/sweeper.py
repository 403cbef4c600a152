"""Runs the controller's sweeps one after the other, in slices. Between two slices, the queue has as much time for other
events as the slice took."""

from __future__ import annotations

import logging
from collections import deque

from klamm.errors import BrokerError
from klamm_controller.active.controller import Controller
from klamm_controller.metadata.sweep import Sweep, all_partitions
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.event_queue import EventQueue

log = logging.getLogger(__name__)

RETRY_MS = 100
"""How long a sweep waits before it retries, because the controller hands over or too many records are uncommitted."""
_TAG = "sweep"


class Sweeper:
    """Runs the sweeps that decisions leave for later turns of the queue."""

    def __init__(self, controller: Controller, queue: EventQueue, clock: Clock) -> None:
        self._controller = controller
        self._queue = queue
        self._clock = clock
        self._sweeps: deque[Sweep] = deque()

    def start(self) -> None:
        """Sweeps all partitions when this controller becomes active, to make the changes that the previous controller
        left."""
        self.add(Sweep("claim", all_partitions(self._controller.appended)))

    def stop(self) -> None:
        """Drops all sweeps. Called when this controller is no longer active; the next active controller sweeps all
        partitions."""
        self._sweeps.clear()
        self._queue.cancel(_TAG)

    def add(self, sweep: Sweep) -> None:
        """Runs `sweep` after the sweeps that were added before it."""
        self._sweeps.append(sweep)
        if len(self._sweeps) == 1:
            self._arm(0)

    def _arm(self, delay_ms: int) -> None:
        self._queue.schedule(_TAG, self._clock.monotonic_ms() + delay_ms, self._run_next)

    def _run_next(self) -> None:
        start_ms = self._clock.monotonic_ms()
        sweep = self._sweeps[0]
        changes = sweep.next_changes(self._controller.appended)
        try:
            if changes:
                self._controller.append(changes)
        except BrokerError as error:
            log.warning("sweep=%r could not change the metadata, retrying: %s", sweep.name, error)
            sweep.put_back()
            self._arm(RETRY_MS)
            return
        if sweep.is_done:
            self._sweeps.popleft()
        if self._sweeps:
            self._arm(self._clock.monotonic_ms() - start_ms + 1)
