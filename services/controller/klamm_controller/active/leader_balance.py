"""Periodically moves leaderships back to the preferred leaders (auto.leader.rebalance.enable)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm_controller.active.controller import Controller
from klamm_controller.metadata.elections import leaders_home, unbalanced_brokers
from klamm_controller.metadata.sweep import Sweep
from klamm_server.runtime.clock import Clock
from klamm_server.runtime.event_queue import EventQueue

log = logging.getLogger(__name__)

_TAG = "leader balance"


class LeaderBalance:
    """Finds brokers that lead too few of their preferred partitions, every `interval_ms`. It passes `sweep` the
    partitions to move back to each."""

    def __init__(
        self,
        controller: Controller,
        queue: EventQueue,
        clock: Clock,
        *,
        interval_ms: int,
        percentage: int,
        sweep: Callable[[Sweep], None],
    ) -> None:
        self._controller = controller
        self._queue = queue
        self._clock = clock
        self._interval_ms = interval_ms
        self._percentage = percentage
        self._sweep = sweep

    def start(self) -> None:
        """Schedules the next check. Called when this controller becomes active."""
        self._queue.schedule(_TAG, self._clock.monotonic_ms() + self._interval_ms, self._check)

    def stop(self) -> None:
        """Cancels the next check. Called when this controller is no longer active."""
        self._queue.cancel(_TAG)

    def _check(self) -> None:
        image = self._controller.appended
        for broker_id in unbalanced_brokers(image, percentage=self._percentage):
            log.info(
                "moving leaderships back to their preferred leader, broker=%d: %s",
                broker_id,
                image.index.tally(broker_id),
            )
            self._sweep(leaders_home(image, broker_id))
        self.start()
